"""Numbers in sentences."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "picture"), counted(2, "picture")
    ('1 picture', '2 pictures')
    """
    return f"{count} {what}" + ("" if count == 1 else "s")
