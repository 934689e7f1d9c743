"""Input validation, NaN and infinities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from efdm import MATCHERS, Partners, blend, channel_stats, efdm, efdmix, histogram_match, prepare, tied_share
from efdm.ops import mix_features

X = torch.rand(1, 3, 4)


@pytest.mark.parametrize(
    ("content", "style", "options", "message"),
    [
        (X, torch.rand(1, 4, 4), {}, r"style has 4 channels.*\(1, 4, 4\) and \(1, 3, 4\)"),
        (torch.rand(2, 3, 4), torch.rand(3, 3, 4), {}, r"style has batch size 3, content has 2"),
        (torch.rand(2, 3), torch.rand(2, 3), {}, r"content has shape \(2, 3\); expected \(batch, channels, \*space\)"),
        (torch.rand(1, 3, 0), X, {}, r"content has shape \(1, 3, 0\)"),
        (X, torch.rand(1, 3, 0), {}, r"style has shape \(1, 3, 0\)"),
        (X, X.double(), {}, r"content is torch.float32, style is torch.float64"),
        (X, X, {"ties": "stabel"}, "did you mean 'stable'"),
        (X, X, {"sizes": "linear"}, "'interpolate', 'nearest'"),
        (X, X, {"style_grad": "yes"}, "'stop', 'flow'"),
        (X, X, {"channel_dim": 0}, "channel_dim=0"),
        (X, X, {"channel_dim": 3}, r"channel_dim=3 .* content \(1, 3, 4\)"),
        (X, X, {"content_mask": torch.ones(5) > 0}, r"shape \(5,\); expected \(4,\) or \(1, 4\)"),
        (X, prepare(X), {"style_mask": torch.ones(4) > 0}, "style_mask .* PreparedStyle"),
        (X, Partners([0]), {"style_mask": torch.ones(4) > 0}, "style_mask .* Partners"),
        (X, prepare(X), {"style_grad": "flow"}, "PreparedStyle carries no gradient"),
    ],
)
def test_invalid_values(content: Tensor, style: Tensor, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        efdm(content, style, **options)


@pytest.mark.parametrize(
    ("content", "style", "options", "message"),
    [
        (torch.ones(1, 3, 4, dtype=torch.uint8), X, {}, r"content \(1, 3, 4\) has dtype torch.uint8"),
        (X, torch.ones(1, 3, 4).long(), {}, r"style \(1, 3, 4\) has dtype torch.int64"),
        (X, [1.0], {}, "style must be a tensor, .* got list"),
        (X.numpy(), X.numpy(), {}, "content must be a tensor, got ndarray"),
        (X, X, {"content_mask": torch.ones(4)}, "content_mask has dtype torch.float32; expected bool"),
        (X, X, {"content_mask": np.ones(4)}, "content_mask has dtype torch.float64; expected bool"),
        (X, X, {"style_mask": "left"}, "style_mask must be a boolean tensor or array, got str"),
    ],
)
def test_invalid_types(content: Tensor, style: object, options: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        efdm(content, style, **options)


@pytest.mark.parametrize("name", MATCHERS)
def test_features_without_dimensions(name: str) -> None:
    scalar = torch.tensor(1.0)
    for style in (scalar, Partners([0])):
        with pytest.raises(ValueError, match=r"content has shape \(\)"):
            MATCHERS[name](scalar, style)
        with pytest.raises(ValueError, match=r"content has shape \(\)|lam has shape \(2,\)"):
            mix_features(scalar, style, torch.rand(2), name)
    with pytest.raises(ValueError, match=r"strength has shape \(2,\)"):
        blend(scalar, scalar, torch.rand(2))


def test_arrays_instead_of_tensors() -> None:
    array = X.numpy()
    for call in (lambda: blend(array, array, 0.5), lambda: tied_share(array), lambda: channel_stats(array)):
        with pytest.raises(TypeError, match="must be a tensor, got ndarray"):
            call()


@pytest.mark.parametrize("name", MATCHERS)
def test_empty_batch_with_masks(name: str) -> None:
    empty = torch.rand(0, 3, 4)
    for mask in (torch.ones(0, 4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)):
        assert MATCHERS[name](empty, empty, content_mask=mask, style_mask=mask).shape == (0, 3, 4)
        assert MATCHERS[name](empty, Partners(torch.empty(0, dtype=torch.long)), content_mask=mask).shape == (0, 3, 4)


def test_masks_from_numpy_and_lists() -> None:
    x, y = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    mask = torch.tensor([True, False, True, True])
    expected = efdm(x, y, content_mask=mask, style_mask=mask)
    for other in (mask.numpy(), mask.tolist()):
        assert torch.equal(efdm(x, y, content_mask=other, style_mask=other), expected)
    assert torch.equal(prepare(y, style_mask=mask.numpy()).mask, prepare(y, style_mask=mask).mask)
    assert torch.equal(channel_stats(x, mask=mask.numpy()).mean, channel_stats(x, mask=mask).mean)


def test_partners_from_lists_and_numpy() -> None:
    x = torch.rand(3, 2, 4)
    expected = efdm(x, Partners(torch.tensor([1, 2, 0])))
    for index in ([1, 2, 0], np.array([1, 2, 0])):
        assert torch.equal(efdm(x, Partners(index)), expected)
        assert torch.equal(efdmix(x, Partners(index), 0.0), expected)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([1, 2, 3, 4], IndexError, r"\[0, 4\).*\[1, 2, 3, 4\]"),
        ([1, 2, 3, -1], IndexError, r"\[0, 4\).*-1"),
        ([1, 0], ValueError, r"4 samples, got shape \(2,\)"),
        ([1.0, 0.0, 2.0, 3.0], ValueError, "got shape .* torch.float32"),
        ("1023", TypeError, "got str '1023'"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_invalid_partners(index: object, error: type[Exception], message: str) -> None:
    x = torch.randn(4, 3, 8)
    for call in (lambda: efdm(x, Partners(index)), lambda: efdmix(x, Partners(index), 0.0)):
        with pytest.raises(error, match=message):
            call()


# NaN and infinities


def test_nan_sorts_last() -> None:
    x = torch.tensor([[[1.0, math.nan, 0.0]]])
    assert efdm(x, torch.tensor([[[5.0, 7.0, 6.0]]])).tolist() == [[[6.0, 7.0, 5.0]]]
    assert efdm(torch.tensor([[[1.0, 2.0, 0.0]]]), x).nan_to_num(9.0).tolist() == [[[1.0, 9.0, 0.0]]]


@pytest.mark.parametrize("ties", ["stable", "random", "neighbor"])
def test_nan_sorts_after_infinity_under_a_mask(ties: str, device: torch.device) -> None:
    nan, inf = math.nan, math.inf
    x = torch.tensor([[[nan, nan, inf, 9.0, 1.0]], [[inf, nan, nan, nan, inf]]], device=device)
    y = torch.tensor([[[10.0, 20.0, 30.0]]], device=device)
    mask = torch.tensor([[False, True, True, False, True], [True, True, False, False, True]], device=device)
    out = efdm(x, y, ties=ties, content_mask=mask)
    assert out[0, 0, [1, 2, 4]].tolist() == [30.0, 20.0, 10.0]
    assert out[1, 0, 1].item() == 30.0
    assert out[1, 0, [0, 4]].sort().values.tolist() == [10.0, 20.0]


def test_masks_equal_selection_with_nan_and_infinities() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([-math.inf, 0.0, 1.0, math.inf, math.nan])
    for _ in range(20):
        x = levels[torch.randint(5, (1, 1, 30), generator=generator)]
        y = torch.randn(1, 1, 30, generator=generator)
        mask = torch.rand(30, generator=generator) < 0.5
        for match in (efdm, histogram_match):
            out = match(x, y, content_mask=mask, style_mask=mask)
            torch.testing.assert_close(out[..., mask], match(x[..., mask], y[..., mask]), rtol=0, atol=0)


def test_nan_in_masked_partners_and_histograms() -> None:
    nan = math.nan
    x = torch.tensor([[[9.0, 9, nan, nan, 3]], [[9.0, 9, 1, 2, 5]]])
    mask = torch.tensor([False, False, True, True, True])
    assert efdm(x, Partners([1, 0]), content_mask=mask)[0, 0].tolist() == [9, 9, 2, 5, 1]
    x, y = torch.tensor([[[7.0, nan, 3]]]), torch.tensor([[[1.0, 2, 4]]])
    mask = torch.tensor([False, True, True])
    assert histogram_match(x, y, content_mask=mask, style_mask=mask)[0, 0].tolist() == [7, 4, 2]


def test_default_device_is_not_used() -> None:
    x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    with torch.device("meta"):
        for ties in ("stable", "neighbor"):
            assert torch.equal(efdm(x, y, ties=ties).sort().values, y.sort().values)
