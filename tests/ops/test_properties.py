"""Properties that hold for any input, tested with hypothesis."""

from __future__ import annotations

import oracle
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import close
from torch import Tensor

from efdm import MATCHERS, blend, channel_stats, efdm, efdmix, prepare, tied_share
from efdm.ops.choices import options_of

settings.register_profile("short", max_examples=40)
settings.load_profile("short")
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)
FEW = st.sampled_from([-1.0, 0.0, -0.0, 0.5, 2.0])  # many ties


@st.composite
def row_pairs(draw: st.DrawFn, same_size: bool = True) -> tuple[Tensor, Tensor]:
    n = draw(st.integers(1, 40))
    m = n if same_size else draw(st.integers(1, 40))
    values = st.one_of(FLOATS, FEW)
    x = draw(st.lists(values, min_size=n, max_size=n))
    y = draw(st.lists(values, min_size=m, max_size=m))
    return torch.tensor([[x]]), torch.tensor([[y]])


@given(row_pairs())
def test_output_has_the_values_of_the_style(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    for ties in ("fast", "stable", "random", "neighbor"):
        assert torch.equal(efdm(x, y, ties=ties).sort(-1).values, y.sort(-1).values)


@given(row_pairs())
def test_agrees_with_the_oracle(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    expected = torch.tensor([[oracle.efdm_row(x[0, 0].tolist(), y[0, 0].tolist())]])
    assert torch.equal(efdm(x, y, ties="stable"), expected)
    assert torch.equal(efdm(x, prepare(y), ties="stable"), expected)


@given(row_pairs(same_size=False))
def test_order_is_preserved(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    out = efdm(x, y)[0, 0]
    above = x[0, 0][:, None] > x[0, 0][None, :]
    assert bool((out[:, None] >= out[None, :])[above].all())


@given(row_pairs())
def test_matching_twice(pair: tuple[Tensor, Tensor]) -> None:
    x, y = pair
    once = efdm(x, y, ties="stable")
    assert torch.equal(efdm(once, y, ties="stable").sort(-1).values, once.sort(-1).values)
    assert torch.equal(efdm(x, x), x)
    if tied_share(x).item() == 0 and tied_share(y).item() == 0:
        assert torch.equal(efdm(once, y), once)
        assert torch.equal(efdm(once, x), x), "matching back must restore the content"


@given(row_pairs(), st.floats(0, 1, width=32))
def test_blend_ends(pair: tuple[Tensor, Tensor], strength: float) -> None:
    x, y = pair
    matched = efdm(x, y)
    for zero, one in ((0, 1), (0.0, 1.0), (torch.tensor([0.0]), torch.tensor([1.0]))):
        assert torch.equal(blend(x, matched, zero), x)
        assert torch.equal(blend(x, matched, one), matched)
        assert torch.equal(efdmix(x, y, one), x)
        assert torch.equal(efdmix(x, y, zero), matched)
    between = blend(x, matched, torch.tensor([strength]))
    tolerance = 1e-6 * torch.maximum(x.abs(), matched.abs())
    assert bool((between >= torch.minimum(x, matched) - tolerance).all())
    assert bool((between <= torch.maximum(x, matched) + tolerance).all())


@given(st.integers(0, 2**31), st.sampled_from(list(MATCHERS)))
def test_every_matcher_matches_its_statistics(seed: int, name: str) -> None:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, 8, 7, generator=g, dtype=torch.float64) ** 3
    y = torch.randn(2, 3, 8, 7, generator=g, dtype=torch.float64).exp()
    options = {"eps": 0.0} if "eps" in options_of(MATCHERS[name].function) else {}
    actual, expected = channel_stats(MATCHERS[name](x, y, **options)), channel_stats(y)
    for statistic in MATCHERS[name].matches:
        close(getattr(actual, statistic), getattr(expected, statistic))


@given(row_pairs(same_size=False), st.integers(0, 2**31))
def test_masks_equal_selection(pair: tuple[Tensor, Tensor], seed: int) -> None:
    x, y = pair
    g = torch.Generator().manual_seed(seed)
    inside, selected = torch.rand(x.shape[-1], generator=g) < 0.5, torch.rand(y.shape[-1], generator=g) < 0.5
    out = efdm(x, y, content_mask=inside, style_mask=selected)
    assert torch.equal(out[..., ~inside], x[..., ~inside])
    if inside.any() and selected.any():
        assert torch.equal(out[..., inside], efdm(x[..., inside], y[..., selected]))
