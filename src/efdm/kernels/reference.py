"""The definition of every kernel in plain torch. All rows of the kernel table must agree with these functions.

- Rows are sorted in ascending order. The sort is stable, ``-0.0`` equals ``0.0``, and NaN sorts last.
- Values are moved, never computed with, so the output holds the same bits as the input. Mixes, tolerant matches and
  quantiles compute.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.kernels.floats import upcast

_THIS = sys.modules[__name__]  # the default of ``functions``, where other kernels take the parts of a function from


def sort_order(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sorted rows and the position of every rank: ``sorted[r] == x[order[r]]``."""
    # torch.sort promises NaN last, but some of its CUDA paths put NaN with a sign bit first
    x = torch.where(x.isnan(), torch.nan, x)
    if torch.onnx.is_in_onnx_export():
        return torch.sort(x, dim=-1)  # exported as TopK, where the lower index wins ties; a stable sort has no ONNX operator
    return torch.sort(x, dim=-1, stable=True)


def sort_rows(y: Tensor) -> Tensor:
    """Sort every row."""
    return sort_order(y)[0]


def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sorted rows and the rank of every element: ``sorted[rank[i]] == x[i]``."""
    values, order = sort_order(x)
    return values, inverse(order).to(torch.int32)


def inverse(order: Tensor) -> Tensor:
    """Return the inverse of every row, a permutation: ranks from positions, or positions from ranks."""
    indices = torch.arange(order.shape[-1], device=order.device, dtype=order.dtype).expand_as(order)
    return torch.zeros_like(order).scatter(-1, order.long(), indices)


def order_dtype(n: int) -> torch.dtype:
    """Return the dtype of positions in rows of ``n`` values. They are saved for backward, so they are small."""
    return torch.int16 if n <= 1 << 15 else torch.int32


def take(values: Tensor, rank: Tensor) -> Tensor:
    """Return ``out`` with ``out[i] = values[rank[i]]``."""
    return values.gather(-1, rank.long())


def match_sorted(x: Tensor, values: Tensor) -> Tensor:
    """Return ``out`` with ``out[tau[i]] = values[i]`` for ``tau = argsort(x)``."""
    order = sort_order(x)[1]
    return torch.zeros_like(values).scatter(-1, order, values)


def sort_match(x: Tensor, y: Tensor) -> Tensor:
    """Return ``out`` with ``out[tau[i]] = sort(y)[i]`` for ``tau = argsort(x)`` (paper, equation 4)."""
    return match_sorted(x, sort_rows(y))


def tolerant_values(content: Tensor, values: Tensor, tolerance: float) -> Tensor:
    """Replace each of the sorted ``values`` by the mean over all ranks of similar content, `similar_ranks`.

    Values are summed in float64, and those of a single rank keep their bits. Rows with infinite values or NaN are unchanged.
    """
    first, end = similar_ranks(content, tolerance)
    finite = values[..., :1].isfinite() & values[..., -1:].isfinite()
    mean = sum_ranks(values, first, end).to(upcast(values).dtype) / (end - first)
    return torch.where(finite & (end - first > 1), mean.to(values.dtype), values)


def tolerant_match(x: Tensor, values: Tensor, tolerance: float, functions: Any = _THIS) -> Tensor:
    """Return `tolerant_values` in the order of ``x``: equal content receives equal values."""
    content, rank = functions.sort_rank(x)
    return functions.take(functions.tolerant_values(content, values, tolerance), rank)  # type: ignore[no-any-return]


def sum_ranks(values: Tensor, first: Tensor, end: Tensor) -> Tensor:
    """Return the sums of ``values[..., first:end]`` in float64."""
    sums = F.pad(values.to(torch.float64).cumsum(-1), (1, 0))
    return sums.gather(-1, end) - sums.gather(-1, first)


def similar_ranks(content: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return the first rank and the end of the ranks whose sorted ``content`` differs by at most ``tolerance`` deviations.

    A deviation is the standard deviation (n - 1) of a row without its NaN. NaN is similar to itself only, and so are all
    values of a row whose deviation is not finite. Similarity is symmetric: in pairs, the smaller value is compared with the
    larger one minus the radius, rounded to float32 (or float64).
    """
    known, wide = ~content.isnan(), content.to(torch.float64)
    count = known.sum(-1, keepdim=True)
    mean = torch.where(known, wide, 0).sum(-1, keepdim=True) / count
    deviation = (torch.where(known, wide - mean, 0).square().sum(-1, keepdim=True) / (count - 1)).sqrt()
    ordered = torch.where(known, upcast(content), torch.inf)
    radius = (tolerance * deviation).to(ordered.dtype)
    rank = torch.arange(content.shape[-1], device=content.device).expand_as(content)
    first = torch.where(known & radius.isfinite(), _count_below(ordered, ordered - radius), rank)
    # a rank is similar to the larger ranks whose first similar rank is not above it
    return first, torch.zeros_like(first).scatter_add(-1, first, torch.ones_like(first)).cumsum(-1)


def _count_below(ordered: Tensor, bounds: Tensor) -> Tensor:
    """Return how many values of each sorted row are below each bound."""
    if not torch.onnx.is_in_onnx_export():
        return torch.searchsorted(ordered, bounds)
    # ONNX has no searchsorted: merge both, bounds first, and subtract the bounds that precede a bound
    index = inverse(sort_order(torch.cat([bounds, ordered], -1))[1])[..., : bounds.shape[-1]]
    return index - torch.arange(bounds.shape[-1], device=bounds.device)


def quantile_values(content: Tensor, values: Tensor, counts: tuple[int | Tensor, int | Tensor] | None = None) -> Tensor:
    """Return the value at the quantile of every rank of the sorted ``content``, so that equal content has equal values.

    The quantile of a rank is the fraction of content that is not above its own. The sorted ``values`` are interpolated
    linearly between the distinct ones, in float32 or float64. ``counts`` are the numbers of selected content and values,
    integers or ``(b, 1, 1)`` with masks; None selects everything and requires rows of equal length.
    """
    rank = torch.arange(1, content.shape[-1] + 1, device=content.device)
    (start, end), wide = tie_bounds(values), upcast(values)
    high = wide
    n, m = counts or (content.shape[-1], values.shape[-1])
    if isinstance(n, Tensor):
        n = n.clamp(min=1)
        rank = torch.minimum(rank, n)  # higher ranks are not selected
    if counts:
        # the quantile rank / n is index rank * m / n of the values, kept as a fraction of integers
        index = torch.div(rank * m - 1, n, rounding_mode="floor").clamp(min=0).expand(content.shape)
        start, end, high = (t.gather(-1, index) for t in (start, end, wide))
    low = wide.gather(-1, (start - 1).clamp(min=0))
    above, width = rank * m - start * n, (end - start) * n
    between = low + above.to(wide.dtype) / width * (high - low)  # torch.lerp rounds differently on different processors
    # exact below the first distinct value and at integer indices
    at_rank = torch.where((start == 0) | (above >= width), high, between).to(values.dtype)
    return at_rank.gather(-1, tie_bounds(content)[1] - 1)


def tie_bounds(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for every value of sorted rows, the number of smaller values and the number of values not larger."""
    n = values.shape[-1]
    is_first = torch.cat([torch.ones_like(values[..., :1], dtype=torch.bool), values[..., 1:] != values[..., :-1]], -1)
    group = is_first.cumsum(-1)  # number of distinct values not larger
    # starts[g] counts the values before group g, and starts[0] is never read. searchsorted has no ONNX operator.
    starts = torch.full_like(group[..., :1], n).expand(*group.shape[:-1], n + 2)
    rank = torch.arange(n, device=values.device).expand_as(group)
    starts = starts.scatter(-1, torch.where(is_first, group, 0), rank)
    return starts.gather(-1, group), starts.gather(-1, group + 1)


def lerp(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return ``x + weight (y - x)`` with one weight per sample.

    The result is exactly ``x`` at weight 0 and ``y`` at weight 1, even where the values are infinite.
    """
    weight = weight.reshape(-1, *[1] * (x.ndim - 1))
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32  # bfloat16 rounds a weight of 0.998 to 1
    mixed = torch.lerp(x.to(dtype), y.to(dtype), weight.to(dtype)).to(x.dtype)
    # select the ends and equal infinities instead of computing them: infinity - infinity is NaN
    selected = torch.where((weight == 0) | ((x == y) & x.isinf()), x, mixed)
    selected = torch.where(weight == 1, y, selected)
    # a learnable weight keeps its gradient at the ends
    return torch.where(mixed.isnan(), selected, mixed) if weight.requires_grad else selected


def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Match each sample of ``x`` ``(b, c, n)`` with sample ``partner[b]`` and blend the two by ``weight[b]``.

    Each sample is sorted once, which yields both its ranks as content and its sorted values as style.
    """
    return mix_order(x, partner, weight)[0]


def mix_order(x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return `mix_partners` and the position of every rank: ``sorted[r] == x[order[r]]``.

    The order is the input of `mix_backward`. Kernels may leave it undefined if all weights are zero.
    """
    values, order = sort_order(x)
    matched = take(values.index_select(0, partner), inverse(order))
    return lerp(x, matched, weight), order.to(order_dtype(x.shape[-1]))


def mix_backward(grad: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of `mix_partners` with respect to ``x``, as content and as style.

    The content receives ``grad``. In addition, the value of rank ``r`` receives ``weight[a] * grad[a, order[a, r]]`` from
    every sample ``a`` that it is a partner of. Gradients are added in float32 or float64 and rounded once.
    """
    dtype = torch.float64 if grad.dtype == torch.float64 else torch.float32
    total, weight = grad.to(dtype), weight.to(dtype).reshape(-1, 1, 1)
    order = torch.where((weight != 0).any(), order, 0).long()
    given = torch.where(weight == 0, 0, weight * total.gather(-1, order))  # zero times infinity is NaN
    received = torch.zeros_like(given).index_add(0, partner, given)
    return (total + torch.zeros_like(total).scatter(-1, order, received)).to(grad.dtype)


def combined(values: Tensor, matrix: Tensor) -> Tensor:
    """Return ``values + matrix @ values`` over the samples of ``values`` ``(b, c, n)``.

    ``matrix`` is ``(b, b)`` for all channels or ``(c, b, b)``. Computed as ``(1 + matrix) @ values``, with the identity 1,
    which saves a pass over the values.
    """
    matrix = matrix.to(values.dtype, copy=True)
    matrix.diagonal(dim1=-2, dim2=-1).add_(1)
    with torch.autocast(values.device.type, enabled=False):  # autocast would round float32 values
        if matrix.ndim == 2:
            return (matrix @ values.flatten(1)).view(values.shape)
        return (matrix @ values.transpose(0, 1)).transpose(0, 1).contiguous()


def combine_order(x: Tensor, matrix: Tensor, functions: Any = _THIS) -> tuple[Tensor, Tensor]:
    """Add ``matrix @ sorted(x)`` to the sorted samples, return them in their original order, and the position of every rank.

    A matrix of zeros returns ``x`` exactly. Kernels may then leave the positions undefined.
    """
    values, rank = functions.sort_rank(x)
    moved = functions.take(combined(values, matrix), rank)
    moved = torch.where((matrix != 0).any(), moved, x)  # zero times infinity is NaN
    return moved, functions.inverse(rank).to(order_dtype(x.shape[-1]))


def combine_backward(grad: Tensor, order: Tensor, matrix: Tensor, functions: Any = _THIS) -> Tensor:
    """Return the gradient of `combine_order` with respect to ``x``: the same combination with the transposed matrix."""
    active = (matrix != 0).any()
    order = torch.where(active, order, 0).to(torch.int32)
    moved = functions.take(combined(functions.take(grad, order), matrix.mT), functions.inverse(order))
    return torch.where(active, moved, grad)
