"""The console, and plain text on it: file names may contain brackets, and long lines are left unbroken for copying."""

from __future__ import annotations

from rich.console import Console

console = Console()


def print_text(text: object, *, style: str | None = None, end: str = "\n") -> None:
    """Print text as it is, without markup, highlighting or line breaks."""
    console.print(str(text), style=style, end=end, markup=False, highlight=False, soft_wrap=True)


def print_warning(text: object) -> None:
    print_text(text, style="yellow")


def print_error(text: object) -> None:
    print_text(text, style="red")
