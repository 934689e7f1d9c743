"""Atomic writes and the cache directory."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

MAX_NAME = 255  # bytes, on the common file systems


def cache_folder() -> Path:
    """Return the package's folder in the user's cache. The folder may not exist yet."""
    # without platformdirs, because the kernels, which cache compiled code, depend only on torch
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "efdm"


def fit_name(path: str, ending: str = "") -> str:
    """Return ``path + ending`` with every part that is too long for a file name shortened.

    A shortened part ends in a hash of the whole part, so different names stay different.

    >>> fit_name("photos/a", ".png"), len(fit_name("a" * 300, ".png"))
    ('photos/a.png', 255)
    """
    *folders, last = path.split("/")
    return "/".join([*(_fit_part(folder, "") for folder in folders), _fit_part(last, ending)])


def _fit_part(part: str, ending: str) -> str:
    encoded = os.fsencode(part)
    room = MAX_NAME - len(os.fsencode(ending))
    if len(encoded) <= room:
        return part + ending
    digest = hashlib.sha256(encoded).hexdigest()[:8]
    return f"{encoded[: room - 9].decode(errors='ignore')}~{digest}{ending}"


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
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file whose contents replace ``path`` at the end of the ``with`` block, as in `atomic_path`."""
    with atomic_path(path) as temporary, open(temporary, "xb") as file:
        yield file
