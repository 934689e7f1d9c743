"""Compiled parts of a model, shared by all models of the same architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

from torch import nn

ENTRIES = 256  # compiled versions of one function, which all parts of all models share

Forward = Callable[..., Any]  # takes a module and the inputs of its forward


@contextmanager
def replaced_forwards(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Call ``forwards[module](module, ...)`` in place of ``module.forward(...)`` in this block. Hooks run as usual."""
    for module, function in forwards.items():
        module.forward = partial(function, module)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in forwards:
            del module.forward


def own_forward(module: nn.Module, *inputs: Any) -> Any:
    """Call the forward of the module's class."""
    return type(module).forward(module, *inputs)


@cache
def compiled(forward: Forward = own_forward) -> Forward:
    """Return ``forward`` compiled. The module is an argument, so modules of equal type and shapes share code.

    Hooks are not compiled, so models that differ only in hooked layers share all of their code.
    """
    import torch._dynamo  # imported here because it takes a second

    # set before anything is compiled, because `mix_after` sets it as well and resets the compiler
    if torch._dynamo.config.skip_nnmodule_hook_guards:  # type: ignore[attr-defined]
        torch._dynamo.config.skip_nnmodule_hook_guards = False  # type: ignore[attr-defined]
        torch._dynamo.reset()
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # older name
    for name in (limit, f"accumulated_{limit}"):
        setattr(torch._dynamo.config, name, max(ENTRIES, getattr(torch._dynamo.config, name)))
    return torch.compile(forward, dynamic=False)  # type: ignore[no-any-return]
