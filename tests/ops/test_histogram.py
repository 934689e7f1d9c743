"""Histogram matching agrees with scikit-image in every channel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from cases import WORKED_X, WORKED_Y
from hypothesis import given
from hypothesis import strategies as st
from tolerances import COMPUTED, DTYPES

from efdm import Partners, efdm, histogram_match, prepare

exposure = pytest.importorskip("skimage.exposure")


def check_against_scikit_image(x: torch.Tensor, y: torch.Tensor) -> None:
    out = histogram_match(x, y)
    relative, absolute = COMPUTED[x.dtype]
    for b in range(x.shape[0]):
        for c in range(x.shape[1]):
            expected = exposure.match_histograms(x[b, c].double().cpu().numpy(), y[b, c].double().cpu().numpy())
            np.testing.assert_allclose(out[b, c].double().cpu().numpy(), expected, rtol=relative, atol=absolute)


VALUES = {
    "distinct": lambda t: t,
    "after_relu": lambda t: t.relu(),
    "few_levels": lambda t: (t * 2).round(),
    "bytes": lambda t: (t * 40 + 128).clamp(0, 255).round() / 255,
    "one_large_level": lambda t: (t > -2).to(t.dtype),
    "all_equal": lambda t: torch.zeros_like(t),
}


@pytest.mark.parametrize("content", VALUES)
def test_equals_scikit_image(content: str) -> None:
    x = VALUES[content](torch.randn(2, 3, 12, 11))
    for style in VALUES.values():
        check_against_scikit_image(x, style(torch.randn(2, 3, 9, 13) * 2 + 1))
        check_against_scikit_image(x, style(torch.randn(2, 3, 12, 11)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    for values in (VALUES["after_relu"], VALUES["distinct"]):
        x, y = (values(torch.randn(2, 3, *space, device=device)).to(dtype) for space in ((12, 11), (9, 13)))
        check_against_scikit_image(x, y)


LEVELS = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=25)


@given(LEVELS, LEVELS)
def test_equals_scikit_image_on_any_ties(x: list[float], y: list[float]) -> None:
    check_against_scikit_image(torch.tensor([[x]], dtype=torch.float64), torch.tensor([[y]], dtype=torch.float64))


def check_against_masks(x: torch.Tensor, y: torch.Tensor) -> None:
    """Compare equal sizes, which have a kernel, with masks that select everything, for which the definition is used."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    both, partners, everything = torch.cat([x, y]), Partners([1, 0]), torch.ones(x.shape[2:], dtype=torch.bool)
    for content, style in ((x, y), (x, prepare(y)), (both, y), (both, partners)):
        out, expected = histogram_match(content, style), histogram_match(content, style, content_mask=everything)
        assert torch.equal(out.isnan(), expected.isnan())
        assert torch.equal(out.view(words)[~out.isnan()], expected.view(words)[~out.isnan()])


SPECIAL = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.1, 1.0, 3.0, math.inf, math.nan])


@given(st.lists(st.tuples(SPECIAL, SPECIAL), min_size=1, max_size=25), st.sampled_from(DTYPES))
def test_equal_sizes_agree_with_masks_bit_for_bit(pairs: list[tuple[float, float]], dtype: torch.dtype) -> None:
    check_against_masks(*torch.tensor(pairs, dtype=dtype).t().contiguous()[:, None, None])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [200, 5003])  # products of the larger counts are no float32 numbers
def test_long_rows_agree_with_masks_bit_for_bit(n: int, dtype: torch.dtype) -> None:
    for content in VALUES.values():
        for style in VALUES.values():
            check_against_masks(*(values(torch.randn(1, 2, n)).to(dtype) for values in (content, style)))


def test_worked_example() -> None:
    x, y = torch.tensor([[WORKED_X]]), torch.tensor([[WORKED_Y]])
    assert torch.equal(histogram_match(x, y), torch.tensor([[[0.1, 0.4, 0.1, 0.5, 0.4]]]))


def test_equals_efdm_without_ties(device: torch.device) -> None:
    x, y = torch.randn(2, 3, 500, device=device), torch.randn(2, 3, 500, device=device)
    assert torch.equal(histogram_match(x, y), efdm(x, y))


def test_equal_values_stay_equal() -> None:
    x = torch.randn(1, 1, 400).relu()
    out = histogram_match(x, torch.randn(1, 1, 400))
    assert out[x == 0].unique().numel() == 1
