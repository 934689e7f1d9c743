"""Named choices, and what to say when a name is wrong."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping

# every option of the matchers that is a choice
NAMED: dict[str, tuple[str, ...]] = {
    "ties": ("fast", "stable", "random", "neighbor"),
    "sizes": ("interpolate", "nearest"),
    "style_grad": ("stop", "flow"),
    "content_grad": ("identity", "stop"),
    "content_stats": ("flow", "stop"),
    "mean": ("scaled", "content"),
}


def check_choice(argument: str, value: object, allowed: Collection[str] | None = None) -> None:
    """Raise unless the value is allowed, by default one of the argument's names in `NAMED`."""
    allowed = NAMED[argument] if allowed is None else allowed
    if value in allowed:
        return
    names = list(allowed)
    close = difflib.get_close_matches(str(value), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{argument}={value!r} is not one of {', '.join(map(repr, names))}{hint}")


def check_options(function: Callable[..., object], options: Mapping[str, object], without: Collection[str] = ()) -> None:
    """Raise for options that the function does not take, or that are left out, and for wrong names of a choice."""
    parameters = inspect.signature(function).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in without]
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"{function.__name__} has no option {name!r}; it takes {', '.join(known)}")
        if name in NAMED:
            check_choice(name, value)
