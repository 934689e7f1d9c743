"""The definition, in plain torch. Every other row of the kernel table must agree with these functions.

All kernels work on rows of numbers ``(rows, n)`` and know nothing of batches, channels or gradients.

- Order is ascending and stable: equal values keep their position. ``-0.0`` equals ``0.0``; NaN sorts last.
- Values are moved, never computed with, so they arrive bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _sort(x: Tensor) -> tuple[Tensor, Tensor]:
    # torch.sort promises NaN last, but some of its CUDA paths put a NaN with a sign first
    x = torch.where(x.isnan(), torch.nan, x)
    if torch.onnx.is_in_onnx_export():
        return torch.sort(x, dim=-1)  # becomes TopK, where the lower index wins a tie; a stable sort has no translation
    return torch.sort(x, dim=-1, stable=True)


def sort_rows(y: Tensor) -> Tensor:
    """The values of every row in ascending order."""
    return _sort(y)[0]


def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sorted values, and for every element its rank: ``sorted[rank[i]] == x[i]``."""
    values, order = _sort(x)
    places = torch.arange(x.shape[-1], device=x.device).expand_as(order)
    return values, torch.zeros_like(order).scatter(-1, order, places).to(torch.int32)


def take(values: Tensor, rank: Tensor) -> Tensor:
    """``out[i] = values[rank[i]]``: give every element the value that belongs to its rank."""
    return values.gather(-1, rank.long())


def match_sorted(x: Tensor, values: Tensor) -> Tensor:
    """``out[tau_i] = values[i]`` with ``tau = argsort(x)``: a style that is sorted already."""
    order = _sort(x)[1]
    return torch.zeros_like(values).scatter(-1, order, values)


def sort_match(x: Tensor, y: Tensor) -> Tensor:
    """``out[tau_i] = sort(y)[i]`` with ``tau = argsort(x)`` (paper, equation 4)."""
    return match_sorted(x, sort_rows(y))


def lerp(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """``x + weight (y - x)``, one weight for each sample; exactly x at 0 and y at 1, also where they are infinite."""
    weight = weight.reshape(-1, *[1] * (x.ndim - 1))
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32  # bfloat16 would round a weight of 0.998 to 1
    mixed = torch.lerp(x.to(wide), y.to(wide), weight.to(wide)).to(x.dtype)
    # the ends and equal infinities are chosen, not computed: infinity - infinity is NaN
    chosen = torch.where((weight == 0) | ((x == y) & x.isinf()), x, mixed)
    chosen = torch.where(weight == 1, y, chosen)
    # a weight that learns must not be cut off at the ends
    return torch.where(mixed.isnan(), chosen, mixed) if weight.requires_grad else chosen


def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Match every sample of ``x`` ``(b, c, n)`` with sample ``partner[b]`` of the same batch, and blend by ``weight[b]``.

    One sort of the batch serves as content and as style.
    """
    values, rank = sort_rank(x)
    return lerp(x, take(values.index_select(0, partner), rank), weight)
