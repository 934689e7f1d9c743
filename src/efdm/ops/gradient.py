"""What the gradient of a match is. The values come from a sort, which has none worth following."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from efdm import kernels
from efdm.shapes import Features, Ranks, Values, checked


def detached(t: Tensor) -> Tensor:
    """`detach`, which costs as much as a launch, only where there is something to detach."""
    return t.detach() if isinstance(t, Tensor) and t.requires_grad else t


def reject_forward_mode(t: Tensor) -> None:
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(t).tangent is not None:
        raise RuntimeError("a match has no forward-mode derivative; use reverse mode (backward, torch.func.grad)")


class _StraightThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(content: Tensor, values: Tensor) -> Tensor:
        return values.detach()  # not a view, which could not be changed in place afterwards (a ReLU often is)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass  # nothing to remember

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return grad, grad


@checked
def straight_through(content: Features, values: Features) -> Features:
    """``values``, with the gradient of the identity towards ``content``. Nothing is saved for backward.

    ``values`` must not depend on ``content``; a gradient they carry (towards a style) is kept.
    """
    reject_forward_mode(content)
    # A function and not `values + (content - content.detach())`: infinity minus infinity is NaN.
    wanted = torch.is_grad_enabled() and (content.requires_grad or values.requires_grad)
    if not wanted or kernels.is_exporting():  # an exported graph is for inference
        return values
    if torch.compiler.is_compiling():
        # a compiler may find that the function below makes no use of `content`, and drop it with its gradient
        return torch.ops.efdm.straight_through(content, values)
    return _StraightThrough.apply(content, values)  # type: ignore[no-any-return,no-untyped-call]


class _SortFlow(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(style: Tensor) -> tuple[Tensor, Tensor]:
        return kernels.sort_rank(style)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Tensor:  # type: ignore[override]
        (rank,) = ctx.saved_tensors
        return take(grad, rank)  # with a gradient of its own, if second derivatives are wanted


class _TakeFlow(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, rank: Tensor) -> Tensor:
        return kernels.take(values, rank)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (rank,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter(-1, rank.long(), grad), None


def _flows(values: Tensor) -> bool:
    return torch.is_grad_enabled() and values.requires_grad and not kernels.is_exporting()


@checked
def sort_rank(style: Values) -> tuple[Values, Ranks]:
    """Sorted rows and ranks; a gradient flows back to where each value came from, if the style asks for one."""
    if _flows(style):
        return _SortFlow.apply(style)  # type: ignore[no-any-return,no-untyped-call]
    return kernels.sort_rank(style)


@checked
def sort_rows(style: Values) -> Values:
    """The sorted rows alone, which are cheaper when no gradient is asked for."""
    return sort_rank(style)[0] if _flows(style) else kernels.sort_rows(style)


@checked
def take(values: Values, rank: Ranks) -> Values:
    """``values[rank]``; a gradient flows back to the values, if they ask for one."""
    if _flows(values):
        return _TakeFlow.apply(values, rank)  # type: ignore[no-any-return,no-untyped-call]
    return kernels.take(values, rank)
