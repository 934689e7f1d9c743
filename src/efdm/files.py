"""Files that are there as a whole or not at all. For every room that writes some."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
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
