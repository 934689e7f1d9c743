"""Tolerant matching: content within a tolerance shares the mean of its style values."""

from __future__ import annotations

import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import DTYPES, close
from torch import Tensor

from efdm import EFDMix, efdm, efdmix, interpolate_styles, prepare
from efdm.errors import SettingError
from efdm.ops import Partners

settings.register_profile("tolerance", max_examples=40, deadline=None)
settings.load_profile("tolerance")
EIGHTHS = st.integers(-40, 40).map(lambda i: i / 8)  # many ties, and exact sums in float32


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    n = draw(st.integers(2, 40))
    lists = st.lists(EIGHTHS, min_size=n, max_size=n)
    return torch.tensor([[draw(lists)]]), torch.tensor([[draw(lists)]])


tolerances = st.sampled_from([1e-6, 0.1234, 0.7123, 3.1234])  # no multiple of a deviation is a difference


def features(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g), torch.randn(shape, generator=g).exp()


@given(pairs(), tolerances)
def test_agrees_with_the_oracle(pair: tuple[Tensor, Tensor], tolerance: float) -> None:
    x, y = pair
    expected = torch.tensor([[oracle.tolerant_row(x[0, 0].tolist(), y[0, 0].tolist(), tolerance)]], dtype=torch.float64)
    close(efdm(x, y, tolerance=tolerance), expected)
    close(efdm(x.double(), prepare(y.double()), tolerance=tolerance), expected)


@given(pairs(), tolerances)
def test_monotone_and_equal_for_equal_content(pair: tuple[Tensor, Tensor], tolerance: float) -> None:
    x, out = pair[0][0, 0], efdm(*pair, tolerance=tolerance)[0, 0]
    above, equal = x[:, None] > x[None], x[:, None] == x[None]
    assert bool((out[:, None] >= out[None] - 1e-5)[above].all())
    assert bool((out[:, None] == out[None])[equal].all())


@given(pairs(), tolerances)
def test_invariances(pair: tuple[Tensor, Tensor], tolerance: float) -> None:
    x, y = pair
    out = efdm(x, y, tolerance=tolerance)
    close(efdm(4 * x + 2, y, tolerance=tolerance), out)
    close(efdm(x, 4 * y + 2, tolerance=tolerance), 4 * out + 2)
    close(efdm(-x, -y, tolerance=tolerance), -out)
    assert torch.equal(efdm(x.flip(-1), y, tolerance=tolerance), out.flip(-1))
    for ties in ("stable", "random", "neighbor"):
        assert torch.equal(efdm(x, y.flip(-1), tolerance=tolerance, ties=ties), out)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_limits(dtype: torch.dtype) -> None:
    x, y = (t.to(dtype) for t in features(2, 3, 20, 30))
    assert torch.equal(efdm(x, y, tolerance=0.0), efdm(x, y))
    mean = y.double().mean((2, 3), keepdim=True).expand(x.shape)
    close(efdm(x, y, tolerance=100), mean)
    close(efdm(torch.ones_like(x), y, tolerance=1e-3), mean)
    distinct = torch.randperm(128).to(dtype).view(1, 1, 8, 16)
    assert torch.equal(efdm(distinct, y[:1, :1, :8, :16], tolerance=1e-3), efdm(distinct, y[:1, :1, :8, :16]))


def test_continuous_in_the_content() -> None:
    """Noise in a flat area gives noise of the same size, where exact ranks give the whole style."""
    _, y = features(1, 1, 64, 64)
    ramp = torch.linspace(0, 1, 64).expand(1, 1, 64, 64).clone()
    ramp[..., :32] = 0.2 + 1e-4 * torch.rand(1, 1, 64, 32)
    flat = [efdm(ramp, y, tolerance=t)[..., :32].std().item() for t in (0.0, 0.1)]
    assert flat[1] < 1e-3 * flat[0]


def test_masks_sizes_and_partners() -> None:
    x, y = features(2, 3, 9, 11)
    g = torch.Generator().manual_seed(1)
    inside, selected = (torch.rand(2, 9, 11, generator=g) < 0.6 for _ in range(2))
    out = efdm(x, y, tolerance=0.3, content_mask=inside, style_mask=selected)
    assert torch.equal(out[~inside[:, None].expand_as(x)], x[~inside[:, None].expand_as(x)])
    for i in range(2):
        row = efdm(x[i : i + 1, :, inside[i]], y[i : i + 1, :, selected[i]], tolerance=0.3)
        close(out[i : i + 1, :, inside[i]], row)
    larger = features(2, 3, 12, 13, seed=2)[1]
    close(efdm(x, larger, tolerance=1e-9), efdm(x, larger))
    close(efdm(x, prepare(larger), tolerance=0.3), efdm(x, larger, tolerance=0.3))
    close(efdm(x, Partners([1, 0]), tolerance=0.3), efdm(x, x.flip(0), tolerance=0.3))
    close(interpolate_styles(x, [y, larger], [1, 0], tolerance=0.3), efdm(x, y, tolerance=0.3))
    moved = efdm(x.movedim(1, -1), y.movedim(1, -1), tolerance=0.3, channel_dim=-1)
    assert torch.equal(moved.movedim(-1, 1), efdm(x, y, tolerance=0.3))
    last = x.contiguous(memory_format=torch.channels_last)
    assert efdm(last, y, tolerance=0.3).is_contiguous(memory_format=torch.channels_last)


def test_values_that_are_not_finite() -> None:
    x, y = features(1, 3, 8, 8)
    x[0, 0, 0, 0], y[0, 1, 0, 0] = torch.inf, torch.nan
    out = efdm(x, y, tolerance=0.3)
    assert torch.equal(out[:, 0], efdm(x, y)[:, 0])
    torch.testing.assert_close(out[:, 1], efdm(x, y)[:, 1], equal_nan=True, rtol=0, atol=0)
    x = x.clone()
    x[0, 2, 3] = torch.nan
    known = ~x[0, 2].isnan()
    out = efdm(x, y, tolerance=0.3)
    assert torch.equal(out[:, 2, 3].sort().values, y[:, 2].flatten().sort().values[None, -8:])
    assert out[0, 2][known].unique().numel() > 8


def test_gradients() -> None:
    x, y = (t.double() for t in features(2, 2, 5, 6))
    x.requires_grad_()
    efdm(x, y, tolerance=0.5).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    style = y.clone().requires_grad_()
    flow = {"tolerance": 0.5, "style_grad": "flow"}
    assert torch.autograd.gradcheck(lambda s: efdm(x.detach(), s, **flow), (style,))
    assert torch.autograd.gradgradcheck(lambda s: efdm(x.detach(), s, **flow).square(), (style,))
    given = torch.autograd.grad(efdm(x.detach(), style, **flow).sum(), style)[0]
    close(given.sum((2, 3)), torch.full((2, 2), 30.0))


def test_mixing_compiling_and_mapping() -> None:
    x, y = features(4, 3, 6, 7)
    lam = torch.tensor([0.0, 0.25, 0.5, 1.0])
    weight = (1 - lam).view(-1, 1, 1, 1)
    close(efdmix(x, y, lam, tolerance=0.2), x + weight * (efdm(x, y, tolerance=0.2) - x))
    layer = EFDMix(p=1.0, tolerance=0.2).train()
    assert "tolerance=0.2" in repr(layer)
    assert layer(x).shape == x.shape
    mapped = torch.vmap(lambda a, b: efdm(a, b, tolerance=0.2))(x[:, None], y[:, None])
    close(mapped[:, 0], efdm(x, y, tolerance=0.2))
    compiled = torch.compile(lambda a, b: efdm(a, b, tolerance=0.2), fullgraph=True, backend="aot_eager")
    close(compiled(x, y), efdm(x, y, tolerance=0.2))
    exported = torch.export.export(_Match(), (x, y)).module()
    close(exported(x, y), efdm(x, y, tolerance=0.2))


class _Match(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return efdm(x, y, tolerance=0.2)


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf"), "0.1", None])
def test_wrong_tolerances(wrong: object) -> None:
    x, y = features(1, 1, 2, 2)
    with pytest.raises(SettingError, match="tolerance must be"):
        efdm(x, y, tolerance=wrong)
    with pytest.raises(SettingError, match="tolerance must be"):
        EFDMix(tolerance=wrong)
