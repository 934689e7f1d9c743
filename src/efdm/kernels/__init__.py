"""Rows of numbers ``(..., n)``: sort them, rank them, match them.

One door: whoever needs a sort calls these functions; `dispatch.py` decides what runs. While a model is being exported they
are the plain torch definition, so that the graph can leave this library.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from efdm.kernels import operators, reference
from efdm.kernels.dispatch import ENV_VARIABLE, KERNELS, choose_kernel, explain
from efdm.shapes import Partner, Ranks, Values, Weight, checked

__all__ = [
    "ENV_VARIABLE",
    "KERNELS",
    "choose_kernel",
    "explain",
    "in_func_transform",
    "is_eager",
    "is_exporting",
    "match_sorted",
    "mix_partners",
    "sort_match",
    "sort_rank",
    "sort_rows",
    "take",
]


# The flag and not torch.compiler.is_exporting(): up to torch 2.11 that function is also true inside torch.compile. Torch 2.6
# has one flag for both, which torch.compile does not set.
_EXPORT_FLAG = "_is_exporting_flag" if hasattr(torch.compiler, "_is_exporting_flag") else "_is_compiling_flag"


def is_exporting() -> bool:
    """Whether torch.export (or the ONNX exporter on top of it) is tracing."""
    return getattr(torch.compiler, _EXPORT_FLAG)


def in_func_transform() -> bool:
    """Whether torch.func is at work (vmap, grad...), whose tensors may be wrappers that die with it."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def is_eager(t: Tensor) -> bool:
    """Whether a tensor holds numbers and nobody looks at what is done with them."""
    return not (
        type(t) is not Tensor  # fake tensors and other subclasses
        or torch.compiler.is_compiling()
        or is_exporting()
        or torch._C._len_torch_dispatch_stack()  # modes
        or in_func_transform()
    )


def _backend(x: Tensor) -> Any:
    if is_exporting():
        return reference
    # Python operators cost some 15 us a call; only those who look at operators need them
    return operators if is_eager(x) else torch.ops.efdm


@checked
def sort_match(x: Values, y: Values) -> Values:
    """``out[tau_i] = sort(y)[i]`` with ``tau = argsort(x)``; rows of equal length."""
    return _backend(x).sort_match(x, y)


@checked
def match_sorted(x: Values, values: Values) -> Values:
    """The same with values that are sorted already."""
    return _backend(x).match_sorted(x, values)


@checked
def sort_rows(y: Values) -> Values:
    """The values of every row in ascending order, NaN last."""
    return _backend(y).sort_rows(y)


@checked
def sort_rank(x: Values) -> tuple[Values, Ranks]:
    """Sorted values, and the rank (int32) of every element: ``sorted[rank[i]] == x[i]``, ties by position."""
    return _backend(x).sort_rank(x)


@checked
def take(values: Values, rank: Ranks) -> Values:
    """``out[i] = values[rank[i]]``."""
    return _backend(values).take(values, rank)


@checked
def mix_partners(x: Values, partner: Partner, weight: Weight) -> Values:
    """Match sample b of ``(b, c, n)`` with sample ``partner[b]`` of the same batch, blended by ``weight[b]`` (float32)."""
    return _backend(x).mix_partners(x, partner, weight)
