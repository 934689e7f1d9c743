"""Gradients of a match. Differentiating the sort itself would give zero almost everywhere."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from efdm import kernels
from efdm.kernels import reference
from efdm.ops.layout import from_rows, to_rows
from efdm.shapes import Features, Ranks, Values, checked


def detached(t: Tensor) -> Tensor:
    """Detach the tensor only if it requires a gradient, because `detach` costs as much as a kernel launch."""
    return t.detach() if isinstance(t, Tensor) and t.requires_grad else t


def needs_grad(values: Tensor) -> bool:
    """Return True if a gradient must flow to ``values``. Exported graphs are for inference and have none."""
    return torch.is_grad_enabled() and values.requires_grad and not kernels.is_exporting()


def reject_forward_mode(t: Tensor) -> None:
    """Raise RuntimeError if the tensor carries a forward-mode tangent."""
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(t).tangent is not None:
        raise RuntimeError("matching does not support forward-mode differentiation; use backward or torch.func.grad")


class _StraightThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(content: Tensor, values: Tensor) -> Tensor:
        return values.detach()  # a view could not be modified in place, as a following ReLU often does

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass  # saves nothing

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return grad, grad


@checked
def straight_through(content: Features, values: Features) -> Features:
    """Return ``values`` with the gradient of the identity with respect to ``content``. Nothing is saved for backward.

    ``values`` must not depend on ``content``. Their own gradient, for example with respect to a style, is preserved.
    """
    reject_forward_mode(content)
    # an autograd function rather than `values + (content - content.detach())`: infinity minus infinity is NaN
    required = torch.is_grad_enabled() and (content.requires_grad or values.requires_grad)
    if not required or kernels.is_exporting():  # exported graphs are for inference
        return values
    if torch.compiler.is_compiling():
        # a compiler may conclude that the function below does not use `content`, and drop its gradient
        return torch.ops.efdm.straight_through(content, values)
    return _StraightThrough.apply(content, values)  # type: ignore[no-any-return,no-untyped-call]


class _WithinBatch(torch.autograd.Function):
    """A kernel ``<verb>_order`` that changes sorted samples by those of the batch, with the gradient ``<verb>_backward``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(content: Tensor, verb: str, channel_dim: int, *samples: Tensor) -> tuple[Tensor, Tensor]:
        # the definition supports torch.vmap, the fused kernels do not
        functions = reference if kernels.in_func_transform() else kernels
        x = to_rows(content, "content", channel_dim).values
        mixed, order = getattr(functions, f"{verb}_order")(x, *samples)
        return from_rows(mixed, content, channel_dim).detach(), order  # a view could not be modified in place

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.verb, ctx.channel_dim, *samples = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # the order would receive a gradient of zeros
        ctx.save_for_backward(output[1], *samples)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        order, *samples = ctx.saved_tensors
        others = [None] * (2 + len(samples))  # verb, channel_dim and samples
        if grad is None:
            return None, *others
        # the definition is differentiable, for second derivatives
        functions = reference if needs_grad(grad) or kernels.in_func_transform() else kernels
        backward = getattr(functions, f"{ctx.verb}_backward")
        rows = backward(to_rows(grad, "gradient", ctx.channel_dim).values, order, *samples)
        return from_rows(rows, grad, ctx.channel_dim), *others


@checked
def within_batch(verb: Literal["mix", "combine"], content: Features, channel_dim: int, *samples: Tensor) -> Features:
    """Return the features of ``kernels.<verb>_order``, with gradient. Only positions are saved for backward.

    ``samples`` are the partners and weights of ``"mix"``, or the matrix of ``"combine"``.
    """
    reject_forward_mode(content)
    if torch.compiler.is_compiling():  # compilers preserve the gradient of an operator
        operator = getattr(torch.ops.efdm, f"{verb}_order")
        return from_rows(operator(to_rows(content, "content", channel_dim).values, *samples)[0], content, channel_dim)
    return _WithinBatch.apply(content, verb, channel_dim, *samples)[0]  # type: ignore[no-any-return,no-untyped-call]


class _SortRank(torch.autograd.Function):
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
        return take(grad, rank)  # differentiable, for second derivatives


class _TolerantValues(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(content: Tensor, values: Tensor, tolerance: float) -> Tensor:
        return kernels.tolerant_values(content, values, tolerance)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        content, _, ctx.tolerance = inputs
        ctx.save_for_backward(content)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:  # type: ignore[override]
        (content,) = ctx.saved_tensors
        first, end = reference.similar_ranks(content, ctx.tolerance)
        # similarity is symmetric: the outputs that a value contributes to are those of the ranks similar to its own
        return None, reference.sum_ranks(grad.to(torch.float64) / (end - first), first, end).to(grad.dtype), None


class _Take(torch.autograd.Function):
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


@checked
def sort_rank(style: Values) -> tuple[Values, Ranks]:
    """Return sorted rows and ranks. The gradient of a sorted value flows to its original position."""
    if needs_grad(style):
        return _SortRank.apply(style)  # type: ignore[no-any-return,no-untyped-call]
    return kernels.sort_rank(style)


@checked
def sort_rows(style: Values) -> Values:
    """Return sorted rows. Without a gradient this is cheaper than `sort_rank`."""
    return sort_rank(style)[0] if needs_grad(style) else kernels.sort_rows(style)


@checked
def take(values: Values, rank: Ranks) -> Values:
    """Return ``out`` with ``out[i] = values[rank[i]]``, differentiable with respect to ``values``."""
    if needs_grad(values):
        return _Take.apply(values, rank)  # type: ignore[no-any-return,no-untyped-call]
    return kernels.take(values, rank)


@checked
def tolerant_values(content: Values, values: Values, tolerance: float) -> Values:
    """Return the averages of `kernels.tolerant_values`, differentiable with respect to ``values``."""
    if needs_grad(values):
        return _TolerantValues.apply(content, values, tolerance)  # type: ignore[no-any-return,no-untyped-call]
    return kernels.tolerant_values(content, values, tolerance)
