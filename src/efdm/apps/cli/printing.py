"""Print plain text: results to stdout and messages to stderr."""

from __future__ import annotations

from rich.console import Console

console = Console(markup=False, highlight=False)  # brackets in names are not markup
messages = Console(markup=False, highlight=False, stderr=True)


def print_text(text: object, *, style: str | None = None, end: str = "\n", to: Console = console) -> None:
    """Print text verbatim: long lines are not wrapped, so that they can be copied."""
    to.print(str(text), style=style, end=end, soft_wrap=True)


def print_message(text: object) -> None:
    print_text(text, to=messages)


def print_warning(text: object) -> None:
    print_text(text, style="yellow", to=messages)


def print_error(text: object) -> None:
    print_text(text, style="red", to=messages)
