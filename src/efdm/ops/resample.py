"""Resampling of order statistics, for content and style of different sizes."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm.ops.choices import Sizes
from efdm.shapes import Resized, Style, checked

Count = int | Tensor  # a number for all samples, or counts (b, 1, 1)


@checked
def resample_sorted(
    values: Style, n: int, sizes: Sizes = "interpolate", style_n: Count = 0, content_n: Count = 0
) -> Resized:
    r"""Read sorted ``values`` ``(..., m)`` at ``n`` mid-ranks.

    Rank ``i`` of ``n`` corresponds to rank ``(i + 1/2) m / n - 1/2`` among the ``m`` order statistics. ``"interpolate"``
    interpolates linearly between the two neighboring order statistics, ``"nearest"`` takes the nearest one. For ``n == m``
    both return the values exactly. Interpolation between a finite and an infinite value may be infinite or NaN.

    With masks, the numbers of selected values ``style_n`` and ``content_n`` differ per sample (default: all values). Values
    beyond ``style_n`` are ignored, and ranks beyond ``content_n`` receive the last value.
    """
    m = values.shape[-1]
    style_n = style_n if isinstance(style_n, Tensor) else (style_n or m)
    content_n = content_n.clamp(min=1) if isinstance(content_n, Tensor) else (content_n or n)
    rank = torch.arange(n, device=values.device)
    # integer arithmetic, so that equal sizes give the same rank exactly
    numerator, denominator = (2 * rank + 1) * style_n, 2 * content_n
    last = style_n - 1
    if sizes == "nearest":
        return _read(values, torch.div(numerator, denominator, rounding_mode="floor"), last)
    left = torch.div(numerator - content_n, denominator, rounding_mode="floor")
    remainder = (numerator - content_n) - left * denominator
    low, high = _read(values, left, last), _read(values, left + 1, last)
    weight = fraction(remainder, denominator, values.dtype)
    between = torch.lerp(low, high, weight.expand(low.shape))
    # exact at integer ranks and between equal infinities, whose difference is NaN
    return torch.where((remainder == 0) | ((low == high) & low.isinf()), low, between)


def _read(values: Tensor, index: Tensor, last: Count) -> Tensor:
    index = index.clamp(min=0)
    index = torch.minimum(index, last.clamp(min=0)) if isinstance(last, Tensor) else index.clamp(max=last)
    return values.gather(-1, index.expand(*values.shape[:-1], index.shape[-1]))


def fraction(numerator: Tensor, denominator: Count, dtype: torch.dtype) -> Tensor:
    """Return a quotient of integers as a weight of the given dtype, computed at least in float32."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return (numerator.to(wide) / denominator).to(dtype)
