"""Compiled parts of a model, shared by all models of the same architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch import nn

ENTRIES = 256  # compiled versions of `_forward`, which all parts of all models share


@contextmanager
def compiled(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Run the forwards of ``parts`` as compiled code in this block.

    Hooks are not compiled, so models that differ only in hooked layers share all of their code.
    """
    for part in parts:
        part.forward = partial(_compiler(), part)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in parts:
            del part.forward


@cache
def _compiler() -> Callable[..., Any]:
    """Return one compiled function that takes the module as an argument, so modules of equal type and shapes share code."""
    import torch._dynamo  # imported here because it takes a second

    # set before anything is compiled, because `mix_after` sets it as well and resets the compiler
    if torch._dynamo.config.skip_nnmodule_hook_guards:  # type: ignore[attr-defined]
        torch._dynamo.config.skip_nnmodule_hook_guards = False  # type: ignore[attr-defined]
        torch._dynamo.reset()
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # older name
    for name in (limit, f"accumulated_{limit}"):
        setattr(torch._dynamo.config, name, max(ENTRIES, getattr(torch._dynamo.config, name)))
    return torch.compile(_forward, dynamic=False)  # type: ignore[no-any-return]


def _forward(module: nn.Module, *inputs: Any) -> Any:
    return type(module).forward(module, *inputs)
