"""The kernels as torch operators, for torch.compile, fake tensors and torch.vmap.

Except for `straight_through`, `mix_order` and `combine_order`, the operators have no gradient: `efdm.ops.gradient` defines
the gradient of a match. These three have one because compilers preserve the gradient of an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from efdm.kernels.dispatch import choose_kernel
from efdm.kernels.reference import order_dtype

_library = torch.library.Library("efdm", "DEF")


# first word of a name -> number of last arguments that describe the samples, and their shapes for b samples of c channels
_SAMPLES: dict[str, tuple[int, Callable[[int, int], tuple[tuple[int, ...], ...]]]] = {
    "mix": (2, lambda b, c: ((b,),)),  # partners and weights
    "combine": (1, lambda b, c: ((b, b), (c, b, b))),  # a matrix for all channels or for each
}


def _second_dtype(name: str, first: Tensor) -> torch.dtype:
    """Return the required dtype of the second argument."""
    if name in ("mix_backward", "combine_backward"):
        return order_dtype(first.shape[-1])
    return {"take": torch.int32, "mix_partners": torch.int64, "mix_order": torch.int64}.get(name, first.dtype)


def _run(name: str, *tensors: Tensor, numbers: tuple[float, ...] = ()) -> Any:
    """Call the chosen kernel, on contiguous rows unless it supports other strides."""
    first = tensors[0]
    count, shapes = _SAMPLES.get(name.split("_")[0], (0, None))
    rows, samples = tensors[: len(tensors) - count], tensors[len(tensors) - count :]
    # The kernels work on raw memory: mismatched shapes, dtypes or devices would read out of bounds.
    same_shape = all(t.shape == first.shape for t in rows)
    if not same_shape or (shapes is not None and any(t.shape not in shapes(*first.shape[:2]) for t in samples)):
        raise ValueError(f"{name} received mismatched shapes {[tuple(t.shape) for t in tensors]}")
    if any(t.device != first.device for t in tensors):
        raise ValueError(f"{name} received tensors on {[str(t.device) for t in tensors]}; move them to one device")
    if len(tensors) > 1 and name != "combine_order" and tensors[1].dtype != (expected := _second_dtype(name, first)):
        raise ValueError(f"{name} of {first.dtype} expects a second argument of {expected}, got {tensors[1].dtype}")
    kernel = choose_kernel(first.device, first.dtype, first.shape[-1])
    ready = tensors if name in kernel.strided else [t.contiguous() for t in tensors]
    return getattr(kernel.functions, name)(*ready, *numbers)


sort_match = partial(_run, "sort_match")
match_sorted = partial(_run, "match_sorted")
sort_rows = partial(_run, "sort_rows")
sort_rank = partial(_run, "sort_rank")
take = partial(_run, "take")


def tolerant_match(x: Tensor, values: Tensor, tolerance: float) -> Tensor:
    return _run("tolerant_match", x, values, numbers=(tolerance,))  # type: ignore[no-any-return]


def tolerant_values(content: Tensor, values: Tensor, tolerance: float) -> Tensor:
    return _run("tolerant_values", content, values, numbers=(tolerance,))  # type: ignore[no-any-return]


def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    return _formatted(_run("mix_partners", x, partner, weight), x)


def mix_order(x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    mixed, order = _run("mix_order", x, partner, weight)
    return _formatted(mixed, x), order


def mix_backward(grad: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    return _formatted(_run("mix_backward", grad, order, partner, weight), grad)


def combine_order(x: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    combined, order = _run("combine_order", x, matrix)
    return _formatted(combined, x), order


def combine_backward(grad: Tensor, order: Tensor, matrix: Tensor) -> Tensor:
    return _formatted(_run("combine_backward", grad, order, matrix), grad)


def _formatted(mixed: Tensor, x: Tensor) -> Tensor:
    """Return ``mixed`` in the memory format of ``x``, in which kernels mix channels-last features without copying."""
    return mixed if mixed.stride() == x.stride() else torch.empty_like(x).copy_(mixed)


def straight_through(content: Tensor, values: Tensor) -> Tensor:
    return values.clone()  # an operator must not return its input


def _like(t: Tensor) -> Tensor:
    return torch.empty_like(t, memory_format=torch.contiguous_format)


def _fake_order(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=order_dtype(x.shape[-1]), memory_format=torch.contiguous_format)


_OPERATORS = (  # schema, implementation, fake implementation
    ("sort_match(Tensor x, Tensor y) -> Tensor", sort_match, lambda x, y: _like(x)),
    ("match_sorted(Tensor x, Tensor values) -> Tensor", match_sorted, lambda x, values: _like(values)),
    ("sort_rows(Tensor y) -> Tensor", sort_rows, _like),
    ("sort_rank(Tensor x) -> (Tensor, Tensor)", sort_rank, lambda x: (_like(x), _like(x.to(torch.int32)))),
    ("take(Tensor values, Tensor rank) -> Tensor", take, lambda values, rank: _like(values)),
    ("tolerant_match(Tensor x, Tensor values, float tolerance) -> Tensor", tolerant_match, lambda x, *_: _like(x)),
    (
        "tolerant_values(Tensor content, Tensor values, float tolerance) -> Tensor", tolerant_values,
        lambda content, *_: _like(content),
    ),
    ("mix_partners(Tensor x, Tensor partner, Tensor weight) -> Tensor", mix_partners, lambda x, *_: torch.empty_like(x)),
    (
        "mix_order(Tensor x, Tensor partner, Tensor weight) -> (Tensor, Tensor)", mix_order,
        lambda x, *_: (torch.empty_like(x), _fake_order(x)),
    ),
    (
        "mix_backward(Tensor grad, Tensor order, Tensor partner, Tensor weight) -> Tensor", mix_backward,
        lambda grad, *_: torch.empty_like(grad),
    ),
    (
        "combine_order(Tensor x, Tensor matrix) -> (Tensor, Tensor)", combine_order,
        lambda x, _: (torch.empty_like(x), _fake_order(x)),
    ),
    (
        "combine_backward(Tensor grad, Tensor order, Tensor matrix) -> Tensor", combine_backward,
        lambda grad, *_: torch.empty_like(grad),
    ),
    ("straight_through(Tensor content, Tensor values) -> Tensor", straight_through, lambda c, values: values.clone()),
)  # fmt: skip


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


for _schema, _implementation, _fake in _OPERATORS:
    _name = _schema.split("(")[0]
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(_name, _implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"efdm::{_name}", _fake, lib=_library)
    if _name.split("_")[0] not in _SAMPLES:  # the samples of a batch depend on each other
        torch.library.register_vmap(f"efdm::{_name}", _batched(_name), lib=_library)

torch.library.register_autograd("efdm::straight_through", lambda ctx, grad: (grad, grad), lib=_library)


def _save_order(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[1:])


def _gradient(name: str) -> Callable[..., tuple[Tensor | None, ...]]:
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        return getattr(torch.ops.efdm, f"{name}_backward")(grad, *ctx.saved_tensors), *[None] * _SAMPLES[name][0]

    return backward


for _name in _SAMPLES:
    torch.library.register_autograd(f"efdm::{_name}_order", _gradient(_name), setup_context=_save_order, lib=_library)
