"""Sorting and matching kernels for rows of values ``(..., n)``.

Call these functions rather than a particular implementation: `dispatch.py` chooses the kernel for the device, the dtype and
the row length. During `torch.export` they run the plain torch definition, so the exported graph does not depend on this
library.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from efdm.kernels import operators, reference
from efdm.kernels.dispatch import ENV_VARIABLE, KERNELS, choose_kernel, explain
from efdm.shapes import Matrix, Order, Partner, Ranks, Values, Weight, checked

__all__ = [
    "ENV_VARIABLE", "KERNELS", "choose_kernel", "combine_backward", "combine_order", "explain", "in_func_transform",
    "is_eager", "is_exporting", "match_sorted", "mix_backward", "mix_order", "mix_partners", "quantile_values", "sort_match",
    "sort_rank", "sort_rows", "take", "tolerant_match", "tolerant_values",
]  # fmt: skip


# Up to torch 2.11, torch.compiler.is_exporting() is also true inside torch.compile; the flag is not. Torch 2.6 has a single
# flag for both, which torch.compile does not set.
_EXPORT_FLAG = "_is_exporting_flag" if hasattr(torch.compiler, "_is_exporting_flag") else "_is_compiling_flag"


def is_exporting() -> bool:
    """Return True while torch.export, or the ONNX exporter that builds on it, is tracing."""
    return getattr(torch.compiler, _EXPORT_FLAG)


def in_func_transform() -> bool:
    """Return True inside a torch.func transform (vmap, grad, ...), whose tensors may be short-lived wrappers."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def is_eager(t: Tensor) -> bool:
    """Return True for a real tensor outside any tracer, dispatch mode or function transform."""
    return not (
        type(t) is not Tensor  # fake tensors and other subclasses
        or torch.compiler.is_compiling()
        or is_exporting()
        or torch._C._len_torch_dispatch_stack()
        or in_func_transform()
    )


def _backend(x: Tensor) -> Any:
    if is_exporting():
        return reference
    # A Python operator adds about 15 us per call, so `torch.ops` is used only while tracing.
    return operators.functions if is_eager(x) else torch.ops.efdm


@checked
def sort_match(x: Values, y: Values) -> Values:
    """Return ``out`` with ``out[tau[i]] = sort(y)[i]`` for ``tau = argsort(x)``. Rows have equal length."""
    return _backend(x).sort_match(x, y)


@checked
def match_sorted(x: Values, values: Values) -> Values:
    """Return `sort_match` of ``x`` and ``values`` that are already sorted."""
    return _backend(x).match_sorted(x, values)


@checked
def sort_rows(y: Values) -> Values:
    """Sort every row in ascending order, NaN last."""
    return _backend(y).sort_rows(y)


@checked
def sort_rank(x: Values) -> tuple[Values, Ranks]:
    """Return the sorted rows and the int32 rank of every element: ``sorted[rank[i]] == x[i]``, ties by position."""
    return _backend(x).sort_rank(x)


@checked
def take(values: Values, rank: Ranks) -> Values:
    """Return ``out`` with ``out[i] = values[rank[i]]``."""
    return _backend(values).take(values, rank)


@checked
def tolerant_match(x: Values, values: Values, tolerance: float) -> Values:
    """Match as `match_sorted` does, with ``values`` averaged over ranks whose content is within ``tolerance`` deviations."""
    return _backend(x).tolerant_match(x, values, tolerance)


@checked
def tolerant_values(content: Values, values: Values, tolerance: float) -> Values:
    """Average sorted ``values`` over all ranks whose sorted ``content`` differs by at most ``tolerance`` deviations."""
    return _backend(content).tolerant_values(content, values, tolerance)


@checked
def quantile_values(content: Values, values: Values) -> Values:
    """Return the sorted ``values`` at the quantiles of the sorted ``content``. Equal content receives equal values."""
    return _backend(content).quantile_values(content, values)


@checked
def mix_partners(x: Values, partner: Partner, weight: Weight) -> Values:
    """Match each sample of ``x`` ``(b, c, n)`` with sample ``partner[b]`` and blend the two by ``weight[b]`` (float32)."""
    return _backend(x).mix_partners(x, partner, weight)


@checked
def mix_order(x: Values, partner: Partner, weight: Weight) -> tuple[Values, Order]:
    """Return `mix_partners` and the position of every rank, which `mix_backward` needs."""
    return _backend(x).mix_order(x, partner, weight)


@checked
def mix_backward(grad: Values, order: Order, partner: Partner, weight: Weight) -> Values:
    """Return the gradient of `mix_partners` with respect to ``x``, in the memory format of ``grad``.

    Each sample receives its own gradient, and ``weight[a]`` times the gradient of every sample ``a`` mixed with it, by rank.
    """
    return _backend(grad).mix_backward(grad, order, partner, weight)


@checked
def combine_order(x: Values, matrix: Matrix) -> tuple[Values, Order]:
    """Add ``matrix @ sorted(x)`` to the sorted samples and restore their order; also return the position of every rank.

    ``matrix`` is ``(b, b)`` for all channels of ``x`` ``(b, c, n)``, or ``(c, b, b)``. A matrix of zeros returns ``x``.
    """
    return _backend(x).combine_order(x, matrix)


@checked
def combine_backward(grad: Values, order: Order, matrix: Matrix) -> Values:
    """Return the gradient of `combine_order` with respect to ``x``, in the memory format of ``grad``."""
    return _backend(grad).combine_backward(grad, order, matrix)
