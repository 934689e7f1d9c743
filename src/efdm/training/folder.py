"""The folder of a run: the names of its files, whether a run can start there, and a lock against a second process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from efdm.errors import RunFolderError
from efdm.training.distributed import processes

CHECKPOINT, DONE, ENVIRONMENT, LOCK = "checkpoint.pt", "done", "environment.json", ".lock"


def check_folder(folder: Path, *, resume: bool) -> None:
    """Raise RunFolderError unless a run can start in ``folder`` or, with ``resume``, continue there.

    Only the first of several processes checks it, because a check locks the folder for a moment.
    """
    if processes()[0] == 0:
        check_unlocked(folder)
        check_started(folder, resume=resume)


def check_started(folder: Path, *, resume: bool) -> None:
    """Raise RunFolderError for a finished run, an unfinished run without ``resume``, or ``resume`` without a checkpoint."""
    if (folder / DONE).exists():
        raise RunFolderError(f"{folder} holds a finished run; choose another folder", folder, "finished")
    started = (folder / CHECKPOINT).exists()
    if resume and not started:
        raise RunFolderError(f"{folder} has no {CHECKPOINT} to resume from; start a new run", folder, "not started")
    if not resume and started:
        raise RunFolderError(f"{folder} holds an unfinished run; resume it or choose another folder", folder, "started")


def remove_torn_files(folder: Path) -> None:
    """Remove temporary files of `efdm.files.atomic_path` that ``kill -9`` left. The folder must be locked."""
    for path in folder.glob(f".{'[0-9a-f]' * 16}.tmp"):
        path.unlink()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create ``folder`` and lock it for this process. Raise RunFolderError if another process holds the lock.

    The operating system releases the lock when the process ends, even after ``kill -9``.
    """
    _check_directory(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(folder / LOCK, timeout=0))
        except Timeout:
            message = f"another process is working in {folder}; wait until it has finished, or choose another folder"
            raise RunFolderError(message, folder, "busy") from None
        except NotImplementedError:  # a file system without locks
            pass
        yield


def check_unlocked(folder: Path) -> None:
    """Raise RunFolderError if another process is working in ``folder``. Creates nothing."""
    _check_directory(folder)
    if (folder / LOCK).exists():
        with lock_folder(folder):
            pass


def _check_directory(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file; choose a folder", folder, "not a folder")
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK):
        raise RunFolderError(f"{folder} cannot be written; choose another folder", folder, "read-only")
