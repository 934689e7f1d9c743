"""Rows of numbers ``(..., n)``: sort them, rank them, match them.

One door: whoever needs a sort calls these functions; `choose.py` decides what runs. While a model is being exported they
are the plain torch definition, so that the graph can leave this library.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from efdm.kernels import operators, reference
from efdm.kernels.choose import TABLE, VARIABLE, choose_kernel, explain

__all__ = ["TABLE", "VARIABLE", "choose_kernel", "explain", "match_sorted", "sort_match", "sort_rank", "sort_rows", "take"]


def exporting() -> bool:
    """Whether torch.export (or the ONNX exporter on top of it) is tracing."""
    # torch 2.6 cannot tell exporting from compiling; the definition is right for both
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def _door(x: Tensor) -> Any:
    if exporting():
        return reference
    # Python operators cost some 15 us a call; only those who look at operators (compilers, fake tensors, modes) need them
    watched = type(x) is not Tensor or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()
    return torch.ops.efdm if watched else operators


def sort_match(x: Tensor, y: Tensor) -> Tensor:
    """``out[tau_i] = sort(y)[i]`` with ``tau = argsort(x)``; rows of equal length."""
    return _door(x).sort_match(x, y)


def match_sorted(x: Tensor, values: Tensor) -> Tensor:
    """The same with values that are sorted already."""
    return _door(x).match_sorted(x, values)


def sort_rows(y: Tensor) -> Tensor:
    """The values of every row in ascending order, NaN last."""
    return _door(y).sort_rows(y)


def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted values, and the rank (int32) of every element: ``sorted[rank[i]] == x[i]``, ties by position."""
    return _door(x).sort_rank(x)


def take(values: Tensor, rank: Tensor) -> Tensor:
    """``out[i] = values[rank[i]]``."""
    return _door(values).take(values, rank)
