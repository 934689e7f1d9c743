"""Named choices, and what to say when a name is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from efdm.ops.ties import TIES

# every option of the matchers that is a choice
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "ties": tuple(TIES),
    "sizes": ("interpolate", "nearest"),
    "style_grad": ("stop", "flow"),
    "content_grad": ("identity", "stop"),
    "content_stats": ("flow", "stop"),
    "mean": ("scaled", "content"),
})  # fmt: skip


def check_choice(argument: str, value: object, allowed: Collection[str] | None = None) -> None:
    """Raise unless the value is allowed, by default one of the argument's names in `CHOICES`."""
    allowed = CHOICES[argument] if allowed is None else allowed
    if value in allowed:
        return
    from efdm.errors import SettingError
    from efdm.text import suggest

    close = suggest(str(value), allowed)
    hint = f"; did you mean {close}?" if close else ""
    raise SettingError(f"{argument}={value!r} is not one of {', '.join(map(repr, allowed))}{hint}", argument)


def check_options(function: Callable[..., object], options: Mapping[str, object], without: Collection[str] = ()) -> None:
    """Raise for options that the function does not take, or that are left out, and for wrong names of a choice."""
    check_known(function.__name__, [name for name in options_of(function) if name not in without], options)


def options_of(function: Callable[..., object]) -> tuple[str, ...]:
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY)


def check_known(who: str, known: Collection[str], options: Mapping[str, object]) -> None:
    """`check_options` where a compiler may look on: it does not understand signatures."""
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"{who} has no option {name!r}; it takes {', '.join(known)}")
        if name in CHOICES:
            check_choice(name, value)
