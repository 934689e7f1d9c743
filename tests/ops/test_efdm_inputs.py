"""What `efdm` refuses and how it tells it, what becomes of NaN, and a default device that is another one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from efdm import Partners, efdm, efdmix, histogram_match, prepare


@pytest.mark.parametrize(
    ("content", "style", "options", "message"),
    [
        (torch.rand(1, 3, 4), torch.rand(1, 4, 4), {}, r"style has 4 channels, content 3 .*\(1, 4, 4\) and \(1, 3, 4\)"),
        (torch.rand(2, 3, 4), torch.rand(3, 3, 4), {}, r"style has a batch of 3, content of 2"),
        (torch.rand(2, 3), torch.rand(2, 3), {}, r"content has shape \(2, 3\); expected \(batch, channels, \*space\)"),
        (torch.rand(1, 3, 0), torch.rand(1, 3, 4), {}, r"\(1, 3, 0\): nothing to match"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 0), {}, r"style has shape \(1, 3, 0\): nothing to match"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 4).double(), {}, r"content is torch.float32, style torch.float64"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 4), {"ties": "stabel"}, "did you mean 'stable'"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 4), {"sizes": "linear"}, "'interpolate', 'nearest'"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 4), {"style_grad": "yes"}, "'stop', 'flow'"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 4), {"channel_dim": 0}, "0 is the batch"),
        (torch.rand(1, 3, 4), torch.rand(1, 3, 4), {"channel_dim": 3}, r"channel_dim=3 .* content \(1, 3, 4\)"),
        (
            torch.rand(1, 3, 4),
            torch.rand(1, 3, 4),
            {"content_mask": torch.ones(5) > 0},
            r"shape \(5,\); expected \(4,\) or \(1, 4\)",
        ),
    ],
)
def test_bad_values(content: Tensor, style: Tensor, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        efdm(content, style, **options)


@pytest.mark.parametrize(
    ("content", "style", "options", "message"),
    [
        (torch.ones(1, 3, 4, dtype=torch.uint8), torch.rand(1, 3, 4), {}, r"content \(1, 3, 4\) has dtype torch.uint8"),
        (torch.rand(1, 3, 4), torch.ones(1, 3, 4).long(), {}, r"style \(1, 3, 4\) has dtype torch.int64"),
        (torch.rand(1, 3, 4), [1.0], {}, "style must be a tensor"),
        (
            torch.rand(1, 3, 4),
            torch.rand(1, 3, 4),
            {"content_mask": torch.ones(4)},
            r"expected bool, for example mask > 0.5",
        ),
    ],
)
def test_bad_types(content: Tensor, style: object, options: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        efdm(content, style, **options)


def test_a_mask_for_a_prepared_style_is_refused() -> None:
    with pytest.raises(ValueError, match="has its selection already"):
        efdm(torch.rand(1, 3, 4), prepare(torch.rand(1, 3, 4)), style_mask=torch.ones(4) > 0)
    with pytest.raises(ValueError, match="has its selection already"):
        prepare(prepare(torch.rand(1, 3, 4)), style_mask=torch.ones(4) > 0)


def test_nan_sorts_last() -> None:
    x = torch.tensor([[[1.0, math.nan, 0.0]]])
    assert efdm(x, torch.tensor([[[5.0, 7.0, 6.0]]])).tolist() == [[[6.0, 7.0, 5.0]]]
    assert efdm(torch.tensor([[[1.0, 2.0, 0.0]]]), x).nan_to_num(9.0).tolist() == [[[1.0, 9.0, 0.0]]]


def test_nan_inside_a_mask_ranks_before_what_is_outside() -> None:
    x = torch.full((1, 1, 6), math.nan)
    mask = torch.tensor([False] * 3 + [True] * 3)
    out = efdm(x, torch.tensor([[[10.0, 20.0, 30.0]]]), content_mask=mask)
    assert out[0, 0, 3:].tolist() == [10.0, 20.0, 30.0]


@pytest.mark.parametrize("index", [[1, 2, 3, 4], [1, 2, 3, -1], [1, 0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_partners_outside_the_batch(index: list[int], dtype: torch.dtype) -> None:
    x = torch.randn(4, 3, 8).to(dtype)
    for call in (lambda: efdm(x, Partners(torch.tensor(index))), lambda: efdmix(x, Partners(torch.tensor(index)), 0.0)):
        with pytest.raises((IndexError, ValueError), match=r"of a batch of 4|each of 4 samples"):
            call()


def test_other_default_devices_do_not_matter() -> None:
    x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    with torch.device("meta"):
        for ties in ("stable", "neighbor"):
            assert torch.equal(efdm(x, y, ties=ties).sort().values, y.sort().values)


def test_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="content must be a tensor, got ndarray"):
        efdm(torch.rand(1, 2, 3).numpy(), torch.rand(1, 2, 3).numpy())


def test_nan_in_masked_partners_and_histograms() -> None:
    nan = math.nan
    x = torch.tensor([[[9.0, 9, nan, nan, 3]], [[9.0, 9, 1, 2, 5]]])
    mask = torch.tensor([False, False, True, True, True])
    assert efdm(x, Partners(torch.tensor([1, 0])), content_mask=mask)[0, 0].tolist() == [9, 9, 2, 5, 1]
    x, y = torch.tensor([[[7.0, nan, 3]]]), torch.tensor([[[1.0, 2, 4]]])
    mask = torch.tensor([False, True, True])
    assert histogram_match(x, y, content_mask=mask, style_mask=mask)[0, 0].tolist() == [7, 4, 2]
    with pytest.raises(ValueError, match="Partners are selected by content_mask"):
        efdm(x, Partners(torch.tensor([0])), style_mask=mask)
