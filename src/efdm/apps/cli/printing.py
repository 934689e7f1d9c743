"""The console of all commands, and functions that print plain text to it."""

from __future__ import annotations

from rich.console import Console

console = Console()


def print_text(text: object, *, style: str | None = None, end: str = "\n") -> None:
    """Print text verbatim: brackets are not markup, and long lines are not wrapped, so that they can be copied."""
    console.print(str(text), style=style, end=end, markup=False, highlight=False, soft_wrap=True)


def print_warning(text: object) -> None:
    print_text(text, style="yellow")


def print_error(text: object) -> None:
    print_text(text, style="red")
