"""The order of equal values. Every rule is a real sort by (value, key): sort by the key first, then stably by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.ops import gradient
from efdm.ops.generator import generator_kwargs
from efdm.ops.layout import Rows
from efdm.shapes import Positions, Values, checked


def _random_key(content: Rows, generator: torch.Generator | None) -> Tensor:
    x = content.values
    return torch.rand(x.shape, device=x.device, dtype=torch.float32, **generator_kwargs(generator))


def _neighbor_key(content: Rows, generator: torch.Generator | None) -> Tensor:
    """Sum over the plus-shaped neighbourhood (5 points on an image), replicate padding."""
    x = content.values
    picture = upcast(x).reshape(*x.shape[:2], *content.space)
    total = picture.clone()
    for dim in range(2, picture.ndim):
        size = picture.shape[dim]
        place = torch.arange(size, device=x.device)
        total = total + picture.index_select(dim, (place - 1).clamp(min=0))
        total = total + picture.index_select(dim, (place + 1).clamp(max=size - 1))
    return total.reshape(x.shape)


# "fast" may use any order the kernel gives; ours all sort stably, so it is "stable" without the promise
TIES: Mapping[str, Callable[[Rows, torch.Generator | None], Tensor] | None] = MappingProxyType({
    "fast": None,
    "stable": None,
    "random": _random_key,
    "neighbor": _neighbor_key,
})  # fmt: skip


def rank_of(content: Rows, x: Tensor, ties: str, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Sorted values and ranks of ``x`` ``(b, c, n)``, equal values in the order of the rule.

    ``x`` is the content made ready for sorting; the rule looks at the content itself.
    """
    key = TIES[ties]
    if key is None:
        return gradient.sort_rank(x)
    with torch.no_grad():
        where = kernels.sort_rank(key(content, generator))[1].long()
    by_key = torch.zeros_like(x).scatter(-1, where, x)
    values, rank = gradient.sort_rank(by_key)
    return values, rank.gather(-1, where)


@checked
def tie_bounds(values: Values) -> tuple[Positions, Positions]:
    """For every sorted value, how many are smaller (where its run starts) and how many are not larger (where it ends)."""
    fresh = values[..., 1:] != values[..., :-1]
    run = torch.cat([torch.zeros_like(values[..., :1], dtype=torch.long), fresh.long().cumsum(-1)], -1)
    # counted with sums and scatters, not searchsorted: they exist in ONNX
    length = torch.zeros_like(run).scatter_add(-1, run, torch.ones_like(run))
    end = length.cumsum(-1).gather(-1, run)
    return end - length.gather(-1, run), end
