"""Order statistics of one length made into another: what to do when content and style differ in size."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm.shapes import Resized, Style, checked

Count = int | Tensor  # one number for all samples, or (b, 1, 1) counts


@checked
def resample_sorted(values: Style, n: int, sizes: str = "interpolate", style_n: Count = 0, content_n: Count = 0) -> Resized:
    r"""Read sorted ``values`` ``(..., m)`` at the ``n`` mid-ranks of the content.

    Rank ``i`` of ``n`` stands at ``(i + 1/2) m / n - 1/2`` among the ``m`` order statistics. ``"interpolate"`` reads there
    linearly, ``"nearest"`` takes the closest order statistic. With ``n == m`` both are the values themselves, exactly.
    Between a finite and an infinite value a linear reading may be infinite or NaN.

    With masks the true counts differ per sample: ``style_n`` and ``content_n`` (default: all); values past them are
    ignored, and ranks past ``content_n`` get the last value.
    """
    m = values.shape[-1]
    style_n = style_n if isinstance(style_n, Tensor) else (style_n or m)
    content_n = content_n.clamp(min=1) if isinstance(content_n, Tensor) else (content_n or n)
    rank = torch.arange(n, device=values.device)
    # in whole numbers, so that equal counts give exactly the same rank
    above, below = (2 * rank + 1) * style_n, 2 * content_n
    last = style_n - 1
    if sizes == "nearest":
        return _read(values, torch.div(above, below, rounding_mode="floor"), last)
    left = torch.div(above - content_n, below, rounding_mode="floor")
    rest = (above - content_n) - left * below
    low, high = _read(values, left, last), _read(values, left + 1, last)
    weight = fraction(rest, below, values.dtype)
    between = torch.lerp(low, high, weight.expand(low.shape))
    # whole ranks and equal infinities are taken as they are: infinity - infinity is NaN
    return torch.where((rest == 0) | ((low == high) & low.isinf()), low, between)


def _read(values: Tensor, index: Tensor, last: Count) -> Tensor:
    index = index.clamp(min=0)
    index = torch.minimum(index, last.clamp(min=0)) if isinstance(last, Tensor) else index.clamp(max=last)
    return values.gather(-1, index.expand(*values.shape[:-1], index.shape[-1]))


def fraction(above: Tensor, below: Count, dtype: torch.dtype) -> Tensor:
    """A quotient of whole numbers as a weight for values of this type; half types get theirs from float32."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return (above.to(wide) / below).to(dtype)
