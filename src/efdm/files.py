"""Files that are there as a whole or not at all, and the folder for those that nobody asked for. For every room."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """Ours in the user's cache. It may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "efdm"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write in a ``with``, at whose end it takes its place: nobody ever sees a part of it.

    What was there is kept until then, and for good if something goes wrong. Its folder must exist.
    """
    target = Path(os.path.realpath(path) if os.path.islink(path) else path)  # a link stays a link
    # a name of its own: others may write the same file, and a long name has no room for an ending
    temporary = target.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, target)
    finally:  # also when interrupted; after the replacement there is nothing left to remove
        temporary.unlink(missing_ok=True)
