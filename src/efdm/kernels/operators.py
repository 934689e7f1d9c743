"""The kernels as torch operators, for torch.compile, fake tensors and torch.vmap.

Except for `straight_through`, `mix_order` and `combine_order`, the operators have no gradient: `efdm.ops.gradient` defines
the gradient of a match. These three have one because compilers preserve the gradient of an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from efdm.kernels.dispatch import choose_kernel
from efdm.kernels.reference import order_dtype

_library = torch.library.Library("efdm", "DEF")


def _like(t: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(t, memory_format=torch.contiguous_format)


def _in_format(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _order_dtype(x: Tensor) -> torch.dtype:
    return order_dtype(x.shape[-1])


def _int64(_: Tensor) -> torch.dtype:
    return torch.int64


def _with_order(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), _like(x).to(_order_dtype(x))


Shapes = Callable[[int, int], tuple[tuple[int, ...], ...]]  # accepted shapes, for b samples of c channels
_PARTNERS: tuple[Shapes, ...] = (lambda b, c: ((b,),),) * 2  # partners and weights
_MATRIX: tuple[Shapes, ...] = (lambda b, c: ((b, b), (c, b, b)),)  # for all channels or for each


@dataclass(frozen=True)
class Operator:
    """A row of the operator table. All tensors have the shape of the first one, except ``samples``, which come last."""

    signature: str
    fake: Callable[..., Any]
    second: Callable[[Tensor], torch.dtype] | None = lambda first: first.dtype  # dtype of the second argument, None for any
    samples: tuple[Shapes, ...] = ()  # the tensors that relate the samples of ``(b, c, n)`` values to each other
    backward: str | None = None  # the operator that computes the gradient, given an order


OPERATORS = {
    "sort_match": Operator("(Tensor x, Tensor y) -> Tensor", _like),
    "match_sorted": Operator("(Tensor x, Tensor values) -> Tensor", _like),
    "sort_rows": Operator("(Tensor y) -> Tensor", _like),
    "sort_rank": Operator("(Tensor x) -> (Tensor, Tensor)", lambda x: (_like(x), _like(x).to(torch.int32))),
    "take": Operator("(Tensor values, Tensor rank) -> Tensor", _like, lambda _: torch.int32),
    "tolerant_match": Operator("(Tensor x, Tensor values, float tolerance) -> Tensor", _like),
    "tolerant_values": Operator("(Tensor content, Tensor values, float tolerance) -> Tensor", _like),
    "quantile_values": Operator("(Tensor content, Tensor values) -> Tensor", _like),
    "mix_partners": Operator("(Tensor x, Tensor partner, Tensor weight) -> Tensor", _in_format, _int64, _PARTNERS),
    "mix_order": Operator(
        "(Tensor x, Tensor partner, Tensor weight) -> (Tensor, Tensor)", _with_order, _int64, _PARTNERS,
        backward="mix_backward",
    ),
    "mix_backward": Operator(
        "(Tensor grad, Tensor order, Tensor partner, Tensor weight) -> Tensor", _in_format, _order_dtype, _PARTNERS
    ),
    "combine_order": Operator(
        "(Tensor x, Tensor matrix) -> (Tensor, Tensor)", _with_order, None, _MATRIX, backward="combine_backward"
    ),
    "combine_backward": Operator("(Tensor grad, Tensor order, Tensor matrix) -> Tensor", _in_format, _order_dtype, _MATRIX),
}  # fmt: skip


def _run(name: str, *arguments: Any) -> Any:
    """Call the chosen kernel, on contiguous rows unless it supports other strides."""
    row, first = OPERATORS[name], arguments[0]
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    # The kernels work on raw memory: mismatched shapes, dtypes or devices would read out of bounds.
    shape, device, count = first.shape, first.device, len(tensors) - len(row.samples)
    fits = all(t.shape == shape for t in tensors[:count])
    if row.samples:
        fits &= all(t.shape in shapes(*shape[:2]) for t, shapes in zip(tensors[count:], row.samples, strict=True))
    if not fits:
        raise ValueError(f"{name} received mismatched shapes {[tuple(t.shape) for t in tensors]}")
    if any(t.device != device for t in tensors):
        raise ValueError(f"{name} received tensors on {[str(t.device) for t in tensors]}; move them to one device")
    if len(tensors) > 1 and row.second and tensors[1].dtype != (expected := row.second(first)):
        raise ValueError(f"{name} of {first.dtype} expects a second argument of {expected}, got {tensors[1].dtype}")
    kernel = choose_kernel(device, first.dtype, shape[-1])
    ready = tensors if name in kernel.strided else [t.contiguous() for t in tensors]
    out = getattr(kernel.functions, name)(*ready, *arguments[len(tensors) :])  # numbers follow the tensors
    if not row.samples:
        return out
    return (_formatted(out[0], first), out[1]) if isinstance(out, tuple) else _formatted(out, first)


def _formatted(mixed: Tensor, x: Tensor) -> Tensor:
    """Return ``mixed`` in the memory format of ``x``, in which kernels mix channels-last features without copying."""
    return mixed if mixed.stride() == x.stride() else torch.empty_like(x).copy_(mixed)


functions = SimpleNamespace(**{name: partial(_run, name) for name in OPERATORS})


def _batched(name: str) -> Callable[..., Any]:
    """Return the torch.vmap rule: kernels accept any leading dimensions, so the mapped dimension moves to the front."""

    def to_front(t: Any, dim: int | None, size: int) -> Any:
        if not isinstance(t, Tensor):
            return t
        return t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
        front = [to_front(t, d, info.batch_size) for t, d in zip(given, in_dims, strict=True)]
        out = getattr(torch.ops.efdm, name)(*front)
        return out, (0, 0) if isinstance(out, tuple) else 0

    return rule


def _save_order(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[1:])


def _gradient(name: str) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        order, *samples = ctx.saved_tensors
        return getattr(torch.ops.efdm, name)(grad, order, *samples), *[None] * len(samples)

    return backward


for _name, _row in OPERATORS.items():
    _library.define(_name + _row.signature, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(_name, getattr(functions, _name), "CompositeExplicitAutograd")
    torch.library.register_fake(f"efdm::{_name}", _row.fake, lib=_library)
    if not _row.samples:  # otherwise the samples of a batch depend on each other
        torch.library.register_vmap(f"efdm::{_name}", _batched(_name), lib=_library)
    if _row.backward:
        torch.library.register_autograd(f"efdm::{_name}", _gradient(_row.backward), setup_context=_save_order, lib=_library)


# an operator must not return its input
_library.define("straight_through(Tensor content, Tensor values) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("straight_through", lambda content, values: values.clone(), "CompositeExplicitAutograd")
torch.library.register_fake("efdm::straight_through", lambda content, values: values.clone(), lib=_library)
torch.library.register_vmap("efdm::straight_through", _batched("straight_through"), lib=_library)
torch.library.register_autograd("efdm::straight_through", lambda ctx, grad: (grad, grad), lib=_library)
