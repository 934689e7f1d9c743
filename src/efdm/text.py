"""Helpers for messages, names and tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def plural(count: int, noun: str) -> str:
    """Return the count and the noun, with an "s" unless the count is 1.

    >>> plural(1, "picture"), plural(2, "picture")
    ('1 picture', '2 pictures')
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")


def first_few(names: Sequence[str], count: int = 3) -> str:
    """Join the first ``count`` names and append the number of remaining names.

    >>> first_few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")


def suggest(name: str, names: Iterable[str], count: int = 1) -> str:
    """Return up to ``count`` quoted names that resemble ``name``, or an empty string.

    >>> suggest("adian", ["adain", "efdm"]), suggest("x", ["adain", "efdm"])
    ("'adain'", '')
    """
    return " or ".join(map(repr, difflib.get_close_matches(name, list(names), n=count)))


def make_unique(names: Iterable[str]) -> list[str]:
    """Append "-2", "-3" and so on to repeated names. Names that differ only in case count as equal, as in some file systems.

    >>> make_unique(["x", "y", "X"])
    ['x', 'y', 'X-2']
    """
    found: dict[str, str] = {}
    for name in names:
        unique, number = name, 1
        while unique.lower() in found:
            number += 1
            unique = f"{name}-{number}"
        found[unique.lower()] = unique
    return list(found.values())


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. The first column is left-aligned and the others are right-aligned."""
    marks = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, marks, *rows))
