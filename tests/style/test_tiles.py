"""Tiles give what the whole picture gives, and look exactly as far as they say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from efdm.models import StyleNetwork, build
from efdm.ops import efdm
from efdm.style.stylizer import Stylizer
from efdm.style.tiles import GRID, LARGE, TILE, in_shares, pieces, run_decoder, run_stage, tile_side
from efdm.style.transfer import restyled

CHANNELS = {"small": 80, "vgg16": 512}


def shaken(name: str, dtype: torch.dtype = torch.float64) -> StyleNetwork:
    """Random weights everywhere: fresh residual branches are zero, and would see nothing."""
    network = build(name)
    for parameter in network.parameters():
        spread = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
        nn.init.normal_(parameter, std=spread)
    return network.eval().requires_grad_(False).to(dtype)


@pytest.fixture(scope="module", params=CHANNELS)
def network(request: pytest.FixtureRequest) -> StyleNetwork:
    torch.manual_seed(0)
    return shaken(request.param)


def steps(network: StyleNetwork) -> list[tuple[nn.Module, int, int, int]]:
    """Module, channels, step before and after, of every stage and the decoder."""
    strides = (1, *network.strides, 1)
    modules = [*network.stages, network.decoder]
    return [(m, 3 if d == 0 else CHANNELS[network.name], strides[d], strides[d + 1]) for d, m in enumerate(modules)]


def all_steps(network: StyleNetwork, x: Tensor, size: tuple[int, int], tile: int | None) -> list[Tensor]:
    found = []
    for depth in range(len(network.stages)):
        found.append(run_stage(network, depth, found[-1] if found else x, size, tile))
    return [*found, run_decoder(network, found[-1], size, tile)]


@pytest.mark.parametrize("tile", [24, 41, 64])
@pytest.mark.parametrize("size", [(93, 57), (40, 131), (8, 120)], ids=str)
def test_tiles_equal_the_whole(network: StyleNetwork, size: tuple[int, int], tile: int) -> None:
    picture = torch.rand(1, 3, *size, dtype=torch.float64)
    whole, tiled = (all_steps(network, picture, size, t) for t in (None, tile))
    for one, other in zip(whole, tiled, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-12)
    assert tiled[-1].shape == picture.shape


def test_the_declared_reach_is_enough_and_needed(network: StyleNetwork) -> None:
    for depth, (module, channels, step_in, step_out) in enumerate(steps(network)):
        start, stop, length = 96, 96 + GRID, 200
        x = torch.randn(1, channels, 16 // step_in, length // step_in, dtype=torch.float64, requires_grad=True)
        wanted = module(x)[..., start // step_out : stop // step_out]
        (gradient,) = torch.autograd.grad(wanted.square().sum(), x)
        seen = gradient.abs().sum((0, 1, 2)).nonzero().flatten() * step_in
        reach = max(start - int(seen.min()), int(seen.max()) + step_in - stop)
        assert reach <= network.reach[depth] < reach + 2 * GRID, f"stage {depth} sees {reach} pixels"


def test_without_overlap_there_would_be_seams(network: StyleNetwork) -> None:
    size = (40, 72)
    picture = torch.rand(1, 3, *size, dtype=torch.float64)
    honest = network.reach
    try:
        network.reach = tuple(0 for _ in honest)
        cut = run_stage(network, 0, picture, size, 32)
    finally:
        network.reach = honest
    assert (cut - run_stage(network, 0, picture, size, None)).abs().max() > 1e-3


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_a_stylized_picture_in_tiles(network: StyleNetwork, strength: float) -> None:
    content, style = torch.rand(1, 3, 75, 101, dtype=torch.float64), torch.rand(1, 3, 40, 50, dtype=torch.float64)
    styles = network.features(style)
    whole, tiled = (
        restyled(network, content, lambda depth, x: efdm(x, styles[depth]), tile, strength) for tile in ("none", 32)
    )
    torch.testing.assert_close(tiled, whole, rtol=0, atol=1e-10)


def test_the_stylizer_in_tiles() -> None:
    stylizer = Stylizer(shaken("small", torch.float32), "cpu")
    content, look = torch.rand(3, 75, 101), stylizer.prepare(torch.rand(3, 64, 50))
    whole, tiled = (stylizer.stylize(content, look, tile=tile) for tile in ("none", 32))
    # in float32 a rounding may exchange two neighbouring ranks
    assert (tiled - whole).abs().mean() < 1e-3


def test_pieces_cover_a_side_once() -> None:
    for length in (1, 8, 63, 64, 65, 1000):
        found = list(pieces(length, 60, 12))
        assert [i for p in found for i in range(p.start, p.stop)] == list(range(length))
        assert all(p.first % GRID == p.start % GRID == 0 for p in found)
        assert all(p.first == 0 or p.start - p.first >= 12 for p in found)
        assert all(p.last == length or p.last - p.stop >= 12 for p in found)


def test_which_pictures_are_tiled() -> None:
    assert tile_side("auto", (3000, 4000)) == TILE
    assert tile_side("auto", (1000, LARGE // 1000)) is None
    assert tile_side("none", (3000, 4000)) is None
    assert tile_side(100, (10, 10)) == 100
    for wrong in ("yes", 0, -5, True):
        with pytest.raises(ValueError, match="'auto', 'none' or a side in pixels"):
            tile_side(wrong, (10, 10))


def test_channels_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.style.tiles.SHARE", 700)
    x = torch.rand(2, 7, 10, 10)
    seen = []

    def work(some: Tensor, channels: slice) -> Tensor:
        seen.append(some.numel())
        return some * torch.arange(7)[channels].view(1, -1, 1, 1)

    assert torch.equal(in_shares(x, work), x * torch.arange(7).view(1, -1, 1, 1))
    assert max(seen) <= 700
    assert len(seen) > 1
