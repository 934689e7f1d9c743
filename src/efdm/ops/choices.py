"""Named choices of the operations and their validation."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Literal, get_args

Ties = Literal["fast", "stable", "random", "neighbor"]
Sizes = Literal["interpolate", "nearest"]
StyleGrad = Literal["stop", "flow"]
ContentGrad = Literal["identity", "stop"]
ContentStats = Literal["flow", "stop"]
Mean = Literal["scaled", "content"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "ties": get_args(Ties),
    "sizes": get_args(Sizes),
    "style_grad": get_args(StyleGrad),
    "content_grad": get_args(ContentGrad),
    "content_stats": get_args(ContentStats),
    "mean": get_args(Mean),
}  # fmt: skip


def check_choice(argument: str, value: object, allowed: Collection[str] | None = None) -> None:
    """Raise `SettingError` unless ``value`` is one of ``allowed``, which defaults to ``CHOICES[argument]``."""
    allowed = CHOICES[argument] if allowed is None else allowed
    if value in allowed:
        return
    from efdm.errors import SettingError

    names = ", ".join(map(repr, allowed))
    raise SettingError(f"{argument}={value!r} is not one of {names}{_hint(str(value), allowed)}", argument)


def check_tolerance(tolerance: float) -> None:
    """Raise `SettingError` unless ``tolerance`` is a finite number >= 0."""
    if isinstance(tolerance, (float, int)) and 0 <= tolerance < math.inf:
        return
    from efdm.errors import SettingError

    raise SettingError(f"tolerance must be a finite number >= 0, got {tolerance!r}", "tolerance")


def _hint(name: str, names: Collection[str]) -> str:
    from efdm.text import suggest

    close = suggest(name, names)
    return f"; did you mean {close}?" if close else ""


def options_of(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the keyword-only arguments."""
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY)


def check_known(function: str, known: Collection[str], options: Mapping[str, object]) -> None:
    """Raise for options that are not in ``known`` and for invalid choices."""
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"{function} has no option {name!r}; its options are {', '.join(known)}{_hint(name, known)}")
        if name in CHOICES:
            check_choice(name, value)
        elif name == "tolerance":
            check_tolerance(value)  # type: ignore[arg-type]
