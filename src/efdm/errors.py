"""Errors with fields. The message is written for Python users; a front end may use the fields to write its own."""

from __future__ import annotations

import copyreg
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

FolderProblem = Literal[
    "busy", "finished", "started", "not started", "other settings", "other data", "not a folder", "read-only"
]


class _WithFields(Exception):
    """An error that keeps its fields when it is sent from one process to another."""

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class SettingError(_WithFields, ValueError):
    """A setting is invalid. ``settings`` names the arguments or fields that the user can change."""

    def __init__(self, message: str, settings: str | Sequence[str] = ()) -> None:
        super().__init__(message)
        self.settings = (settings,) if isinstance(settings, str) else tuple(settings)


class DamagedFileError(_WithFields, ValueError):
    """A file exists but cannot be read. The message names the file, the problem and what to try."""

    def __init__(self, path: str | os.PathLike[str], problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}")
        self.path, self.problem, self.remedy = Path(path), problem, remedy


class RunFolderError(_WithFields, ValueError):
    """A run can neither start nor resume in ``folder``. ``settings`` names the arguments that the user can change."""

    def __init__(self, message: str, folder: str | os.PathLike[str], problem: FolderProblem) -> None:
        super().__init__(message)
        self.folder, self.problem = Path(folder), problem
        self.settings = {"started": ("resume", "out"), "not started": ("resume",)}.get(problem, ("out",))


class DivergedError(_WithFields, FloatingPointError):
    """The loss or the weights of a run are no longer finite. ``settings`` names what to lower."""

    def __init__(self, message: str, iteration: int, settings: Sequence[str] = ("lr",)) -> None:
        super().__init__(message)
        self.iteration, self.settings = iteration, tuple(settings)


class OutOfMemoryError(_WithFields, MemoryError):
    """The picture ``file`` needs more memory than is free. ``__cause__`` is the original error, which names the device."""

    def __init__(self, file: str) -> None:
        super().__init__(f"not enough memory for {file}")
        self.file = file


DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# torch raises a plain RuntimeError when the memory of a CPU or of cuDNN runs out
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for Python's MemoryError and for the errors of torch that mean the same."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)


def describe_os_error(error: Exception, path: str | os.PathLike[str]) -> str:
    """Return why ``path`` cannot be read or written, and what to try."""
    reason = getattr(error, "strerror", None) or error
    if getattr(error, "errno", None) in DISK_FULL:
        return f"{path} cannot be written ({reason}); free some space or choose another disk"
    if getattr(error, "errno", None) == errno.ENAMETOOLONG:
        return f"{path} cannot be read or written ({reason}); choose a shorter name"
    reasons: dict[type[Exception] | tuple[type[Exception], ...], str] = {
        FileNotFoundError: "does not exist; check the name",
        IsADirectoryError: "is a folder; expected a file",
        (NotADirectoryError, FileExistsError): "is, or is below, a file, not a folder; check the name",
        PermissionError: "is not accessible (permission denied); change its permissions or choose another folder",
        Exception: f"cannot be read or written ({reason}); choose another folder",
    }
    return f"{path} {next(text for known, text in reasons.items() if isinstance(error, known))}"


class MissingExtraError(ImportError):
    """An optional package is not installed. ``extra`` is the extra of ``efdm`` that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'efdm[{extra}]'", name=package)
        self.package, self.extra = package, extra


@contextmanager
def requires(extra: str) -> Iterator[None]:
    """Raise `MissingExtraError` if an import in the ``with`` block fails because a package is not installed.

    In nested blocks, the outermost block names the extra, because the extra of a package includes those of the packages
    below it.
    """
    try:
        yield
    except (ModuleNotFoundError, MissingExtraError) as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "efdm"):
            raise
        raise MissingExtraError(package, extra) from error
