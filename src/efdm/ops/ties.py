"""Ranking of content: the order among equal values, and masks.

Every tie rule sorts by (value, key): the content is permuted into the order of the key, then sorted stably by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.ops import gradient
from efdm.ops.choices import Ties
from efdm.ops.generator import generator_kwargs
from efdm.ops.layout import Rows


def _random_key(content: Rows, generator: torch.Generator | None) -> Tensor:
    x = content.values
    return torch.rand(x.shape, device=x.device, dtype=torch.float32, **generator_kwargs(generator))


def _neighbor_key(content: Rows, generator: torch.Generator | None) -> Tensor:
    """Return the sum over each value and its direct neighbors (5 points in an image) with replicate padding."""
    x = content.values
    features = upcast(x).reshape(*x.shape[:2], *content.space)
    total = features.clone()
    for dim in range(2, features.ndim):
        size = features.shape[dim]
        index = torch.arange(size, device=x.device)
        total = total + features.index_select(dim, (index - 1).clamp(min=0))
        total = total + features.index_select(dim, (index + 1).clamp(max=size - 1))
    return total.reshape(x.shape)


# None sorts by value and position. All kernels are stable, so "fast" currently equals "stable", but this is not guaranteed.
TIES: Mapping[Ties, Callable[[Rows, torch.Generator | None], Tensor] | None] = {
    "fast": None,
    "stable": None,
    "random": _random_key,
    "neighbor": _neighbor_key,
}  # fmt: skip


def _selected_first(mask: Tensor) -> Tensor:
    """Return the index of every position after a stable partition of the mask with True first."""
    selected, others = mask.cumsum(-1), (~mask).cumsum(-1)
    return torch.where(mask, selected, selected[..., -1:] + others) - 1


def _presort(content: Rows, ties: Ties, generator: torch.Generator | None) -> Tensor | None:
    """Return the order before the stable sort by value as indices ``(b, c, n)``, or None for the order of positions.

    The sort treats values outside the mask as NaN. Selected values are therefore placed first, so selected NaN precede
    unselected values.
    """
    key = TIES[ties]
    if key is None:
        return None if content.mask is None else _selected_first(content.mask).expand_as(content.values)
    with torch.no_grad():
        index = kernels.sort_rank(key(content, generator))[1].long()
    if content.mask is None:
        return index
    mask = content.mask.expand_as(index)
    return _selected_first(torch.zeros_like(mask).scatter(-1, index, mask)).gather(-1, index)


def sort_rank(content: Rows, ties: Ties, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return the sorted content and the rank of every value, with selected values before the others."""
    x, index = content.selected(), _presort(content, ties, generator)
    if index is None:
        return gradient.sort_rank(x)
    values, rank = gradient.sort_rank(torch.zeros_like(x).scatter(-1, index, x))
    return values, rank.gather(-1, index)


def match_sorted(
    content: Rows, values: Tensor, ties: Ties, generator: torch.Generator | None = None, tolerance: float = 0.0
) -> Tensor:
    """Give the content of rank ``i`` the value ``values[..., i]``, or with a tolerance their mean over similar content.

    A gradient flows to ``values`` if they require one.
    """
    if tolerance:
        if content.mask is None and not gradient.needs_grad(values):
            return kernels.tolerant_match(content.values, values, tolerance)
        ordered, rank = sort_rank(content, "stable")
        return gradient.take(gradient.tolerant_values(ordered, values, tolerance), rank)
    if TIES[ties] is not None or gradient.needs_grad(values):
        return gradient.take(values, sort_rank(content, ties, generator)[1])
    x, index = content.selected(), _presort(content, ties, generator)
    if index is None:
        return kernels.match_sorted(x, values)
    return kernels.match_sorted(torch.zeros_like(x).scatter(-1, index, x), values).gather(-1, index)
