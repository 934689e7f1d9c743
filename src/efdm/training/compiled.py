"""Compiled parts of a model, shared by all models of one architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch import nn

ENTRIES = 256  # compiled versions of a function: all parts of all models, in training and not, go through a single one


@contextmanager
def compiled(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Within this block the forwards of ``parts`` are compiled code. Their hooks are not part of it: layers that were put
    in by hooks run as they are, and models with different ones share all of their code."""
    for part in parts:
        part.forward = partial(_compiler(), part)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in parts:
            del part.forward


@cache
def _compiler() -> Callable[..., Any]:
    """One compiled function for the process: a module is an argument, and its weights are, too, so that the next module of
    the same kind and shapes finds its code."""
    import torch._dynamo  # late: it takes a second

    # before anything is compiled: whoever puts layers into models by hooks does the same and begins anew
    if torch._dynamo.config.skip_nnmodule_hook_guards:  # type: ignore[attr-defined]
        torch._dynamo.config.skip_nnmodule_hook_guards = False  # type: ignore[attr-defined]
        torch._dynamo.reset()
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # its older name
    for name in (limit, f"accumulated_{limit}"):
        setattr(torch._dynamo.config, name, max(ENTRIES, getattr(torch._dynamo.config, name)))
    return torch.compile(_forward, dynamic=False)  # type: ignore[no-any-return]


def _forward(module: nn.Module, *inputs: Any) -> Any:
    return type(module).forward(module, *inputs)
