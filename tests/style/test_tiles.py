"""Tiled and untiled results are equal, and the declared receptive fields are exact."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from efdm.models import StyleNetwork, build, vgg
from efdm.ops import efdm
from efdm.style.pipeline import map_channels, run_network, run_stage, spans
from efdm.style.stylizer import Stylizer

CHANNELS = {"small": 80, "vgg16": 16}


def randomized(name: str, dtype: torch.dtype = torch.float64) -> StyleNetwork:
    """Return a network whose residual branches are not zero, unlike those of a new network. A VGG has few channels."""
    with mock.patch.object(vgg, "WIDTHS", (CHANNELS["vgg16"],) * 5):
        network = build(name)
    for parameter in network.parameters():
        spread = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
        nn.init.normal_(parameter, std=spread)
    return network.eval().requires_grad_(False).to(dtype)


@pytest.fixture(scope="module", params=CHANNELS)
def network(request: pytest.FixtureRequest) -> StyleNetwork:
    torch.manual_seed(0)
    return randomized(request.param)


def steps(network: StyleNetwork) -> list[tuple[nn.Module, int, int, int]]:
    """Return module, input channels, and input and output stride of every stage and the decoder."""
    strides = (1, *network.strides, 1)
    modules = [*network.stages, network.decoder]
    return [(m, 3 if d == 0 else CHANNELS[network.name], strides[d], strides[d + 1]) for d, m in enumerate(modules)]


def all_steps(network: StyleNetwork, x: Tensor, size: tuple[int, int]) -> list[Tensor]:
    found = []
    for depth in range(len(network.stages) + 1):
        found.append(run_stage(network, depth, found[-1] if found else x, size))
    return found


@contextmanager
def tiles(side: int) -> Iterator[None]:
    """Cut images of any size into tiles."""
    with mock.patch.multiple("efdm.style.pipeline", LARGE=0, TILE=side):
        yield


@pytest.mark.parametrize(("size", "tile"), [((93, 57), 41), ((40, 131), 24), ((8, 120), 64)], ids=str)
def test_tiled_and_untiled_stages_agree(network: StyleNetwork, size: tuple[int, int], tile: int) -> None:
    picture = torch.rand(1, 3, *size, dtype=torch.float64)
    whole = all_steps(network, picture, size)
    with tiles(tile):
        tiled = all_steps(network, picture, size)
    for one, other in zip(whole, tiled, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-12)
    assert tiled[-1].shape == picture.shape


def test_declared_receptive_field_is_sufficient_and_tight(network: StyleNetwork) -> None:
    grid = network.max_stride
    for depth, (module, channels, step_in, step_out) in enumerate(steps(network)):
        start, stop, length = 96, 96 + grid, 208
        x = torch.randn(1, channels, 16 // step_in, length // step_in, dtype=torch.float64, requires_grad=True)
        wanted = module(x)[..., start // step_out : stop // step_out]
        (gradient,) = torch.autograd.grad(wanted.square().sum(), x)
        seen = gradient.abs().sum((0, 1, 2)).nonzero().flatten() * step_in
        radius = max(start - int(seen.min()), int(seen.max()) + step_in - stop)
        assert radius <= network.receptive_field[depth] < radius + 2 * grid, f"stage {depth} needs {radius} pixels"


def test_tiles_without_overlap_leave_seams(network: StyleNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (40, 72)
    picture = torch.rand(1, 3, *size, dtype=torch.float64)
    monkeypatch.setattr(network, "receptive_field", (0,) * len(network.receptive_field))
    with tiles(32):
        cut = run_stage(network, 0, picture, size)
    assert (cut - run_stage(network, 0, picture, size)).abs().max() > 1e-3


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_tiled_and_untiled_transfer_agree(strength: float) -> None:
    network = randomized("small")
    content, style = torch.rand(1, 3, 75, 101, dtype=torch.float64), torch.rand(1, 3, 40, 50, dtype=torch.float64)
    styles = network.features(style)
    run = partial(run_network, network, content, lambda depth, x: efdm(x, styles[depth]), strength)
    whole = run()
    with tiles(32):
        tiled = run()
    torch.testing.assert_close(tiled, whole, rtol=0, atol=1e-10)


def test_tiled_and_untiled_stylizer_agree() -> None:
    stylizer = Stylizer(randomized("small", torch.float32), "cpu")
    content, look = torch.rand(3, 75, 101), stylizer.prepare(torch.rand(3, 64, 50))
    whole = stylizer.stylize(content, look)
    with tiles(32):
        tiled = stylizer.stylize(content, look)
    # roundings in float32 may swap neighbouring ranks
    assert (tiled - whole).abs().mean() < 1e-3


@pytest.mark.parametrize("grid", [8, 16])
def test_spans_cover_every_pixel_once(grid: int) -> None:
    for length in (1, 8, 63, 64, 65, 1000):
        found = list(spans(length, 60, 12, grid, (1, 1)))
        assert [i for _, core, _ in found for i in range(core.start, core.stop)] == list(range(length))
        for padded, core, inner in found:
            assert padded.start % grid == core.start % grid == 0
            assert (inner.start, inner.stop) == (core.start - padded.start, core.stop - padded.start)
            assert padded.start == 0 or core.start - padded.start >= 12
            assert padded.stop == length or padded.stop - core.stop >= 12


def test_channels_are_processed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.style.pipeline.CHUNK", 350)
    x = torch.rand(2, 7, 10, 10)
    seen = []

    def work(some: Tensor, channels: slice) -> Tensor:
        seen.append(some[0].numel())
        return some * torch.arange(7)[channels].view(1, -1, 1, 1)

    assert torch.equal(map_channels(x, work), x * torch.arange(7).view(1, -1, 1, 1))
    assert max(seen) <= 350
    assert len(seen) > 1
