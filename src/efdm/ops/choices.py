"""Named choices, and what to say when a name is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def check_choice(argument: str, value: object, allowed: Collection[str]) -> None:
    if value in allowed:
        return
    names = list(allowed)
    close = difflib.get_close_matches(str(value), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{argument}={value!r} is not one of {', '.join(map(repr, names))}{hint}")
