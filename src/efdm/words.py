"""Numbers and names in sentences."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "picture"), counted(2, "picture")
    ('1 picture', '2 pictures')
    """
    return f"{count} {what}" + ("" if count == 1 else "s")


def nearest(name: str, names: Iterable[str], count: int = 1) -> str:
    """What may have been meant by a name that is not there, or nothing.

    >>> nearest("adian", ["adain", "efdm"]), nearest("x", ["adain", "efdm"])
    ("'adain'", '')
    """
    return " or ".join(map(repr, difflib.get_close_matches(name, list(names), n=count)))
