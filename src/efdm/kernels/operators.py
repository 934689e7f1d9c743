"""The kernels as torch operators, for torch.compile, fake tensors and torch.vmap.

Except for `straight_through`, the operators have no gradient: `efdm.ops.gradient` defines the gradient of a match.
`straight_through` is an operator because compilers preserve the gradient of an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from efdm.kernels.dispatch import choose_kernel

_library = torch.library.Library("efdm", "DEF")


# dtype of the second argument where it differs from the first
_SECOND_DTYPE = {"take": torch.int32, "mix_partners": torch.int64}


def _run(name: str, *tensors: Tensor) -> Any:
    """Call the chosen kernel, on contiguous rows unless it supports other strides."""
    first = tensors[0]
    # The kernels work on raw memory: mismatched shapes, dtypes or devices would read out of bounds.
    same_shape = all(t.shape == first.shape for t in tensors[1:])
    if not same_shape and not (name == "mix_partners" and tensors[1].shape == tensors[2].shape == first.shape[:1]):
        raise ValueError(f"{name} received mismatched shapes {[tuple(t.shape) for t in tensors]}")
    if any(t.device != first.device for t in tensors):
        raise ValueError(f"{name} received tensors on {[str(t.device) for t in tensors]}; move them to one device")
    if len(tensors) > 1 and tensors[1].dtype != (expected := _SECOND_DTYPE.get(name, first.dtype)):
        raise ValueError(f"{name} of {first.dtype} expects a second argument of {expected}, got {tensors[1].dtype}")
    kernel = choose_kernel(first.device, first.dtype, first.shape[-1])
    ready = tensors if name in kernel.strided else [t.contiguous() for t in tensors]
    return getattr(kernel.functions, name)(*ready)


sort_match = partial(_run, "sort_match")
match_sorted = partial(_run, "match_sorted")
sort_rows = partial(_run, "sort_rows")
sort_rank = partial(_run, "sort_rank")
take = partial(_run, "take")


def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    mixed = _run("mix_partners", x, partner, weight)
    # unlike the other operators, this one returns the memory format of x: kernels mix channels-last features without copying
    return mixed if mixed.stride() == x.stride() else torch.empty_like(x).copy_(mixed)


def straight_through(content: Tensor, values: Tensor) -> Tensor:
    return values.clone()  # an operator must not return its input


def _like(t: Tensor) -> Tensor:
    return torch.empty_like(t, memory_format=torch.contiguous_format)


_OPERATORS = (  # schema, implementation, fake implementation
    ("sort_match(Tensor x, Tensor y) -> Tensor", sort_match, lambda x, y: _like(x)),
    ("match_sorted(Tensor x, Tensor values) -> Tensor", match_sorted, lambda x, values: _like(values)),
    ("sort_rows(Tensor y) -> Tensor", sort_rows, _like),
    ("sort_rank(Tensor x) -> (Tensor, Tensor)", sort_rank, lambda x: (_like(x), _like(x.to(torch.int32)))),
    ("take(Tensor values, Tensor rank) -> Tensor", take, lambda values, rank: _like(values)),
    ("mix_partners(Tensor x, Tensor partner, Tensor weight) -> Tensor", mix_partners, lambda x, *_: torch.empty_like(x)),
    ("straight_through(Tensor content, Tensor values) -> Tensor", straight_through, lambda c, values: values.clone()),
)


def _batched(name: str) -> Callable[..., Any]:
    """Return the torch.vmap rule: kernels accept any leading dimensions, so the mapped dimension moves to the front."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Any, Any]:
        pairs = zip(tensors, in_dims, strict=True)
        front = [t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0) for t, d in pairs]
        out = getattr(torch.ops.efdm, name)(*front)
        return out, (0, 0) if isinstance(out, tuple) else 0

    return rule


for _schema, _implementation, _fake in _OPERATORS:
    _name = _schema.split("(")[0]
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(_name, _implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"efdm::{_name}", _fake, lib=_library)
    if _name != "mix_partners":  # the samples of a batch depend on each other
        torch.library.register_vmap(f"efdm::{_name}", _batched(_name), lib=_library)

torch.library.register_autograd("efdm::straight_through", lambda ctx, grad: (grad, grad), lib=_library)
