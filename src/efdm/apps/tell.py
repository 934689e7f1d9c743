"""What went wrong, told to the user."""

from __future__ import annotations

from rich.console import Console


def tell(console: Console, what: object) -> None:
    """A sentence in red, as it is: names of files may hold brackets, and a line may be copied from the terminal."""
    console.print(str(what), style="red", markup=False, highlight=False, soft_wrap=True)
