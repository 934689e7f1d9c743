"""Histogram matching agrees with scikit-image in every channel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import WORKED_X, WORKED_Y
from hypothesis import given
from hypothesis import strategies as st
from tolerances import COMPUTED

from efdm import efdm, histogram_match

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
