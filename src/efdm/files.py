"""Atomic writes and the cache directory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """Return the package's folder in the user's cache. The folder may not exist yet."""
    # without platformdirs, because the kernels, which cache compiled code, depend on torch alone
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "efdm"


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` at the end of the ``with`` block.

    If the block raises, ``path`` is unchanged. The folder must exist. A symbolic link stays a link.
    """
    target = Path(os.path.realpath(path) if os.path.islink(path) else path)
    # a random name: another process may write the same file, and a long name leaves no room for a suffix
    temporary = target.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        if error.errno and str(error.filename or temporary) == str(temporary):  # a full disk names no file
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file whose contents replace ``path`` at the end of the ``with`` block, as in `atomic_path`."""
    with atomic_path(path) as temporary, open(temporary, "xb") as file:
        yield file
