"""Errors as one sentence and an exit code: 2 for what the user can change, 130 after Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import typer

from efdm.apps.cli.printing import print_error, print_text
from efdm.errors import DivergedError, FolderProblem, RunFolderError, SettingError

EXPECTED = (ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError)
# torch raises RuntimeError when the memory of a CPU or of cuDNN runs out
OUT_OF_MEMORY = ("DefaultCPUAllocator", "out of memory", "ALLOC_FAILED")

FOLDER_ADVICE: Mapping[FolderProblem, str] = {
    "busy": "wait for the other process, or choose another folder with -o",
    "finished": "choose another folder with -o",
    "started": "add --resume to continue the run, or choose another folder with -o",
    "not started": "leave out --resume to start a run",
    "other settings": "leave out the options that differ, or choose another folder with -o",
    "other data": "pass the data that the run started with, or choose another folder with -o",
}


@contextmanager
def report_errors(
    interrupted: str | Callable[[], str] = "interrupted", *, weight_options: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Print an expected error as one sentence and exit with code 2, or with 130 after Ctrl-C.

    ``interrupted`` is printed after Ctrl-C. ``weight_options`` maps the names of weights to the options that take their
    files.
    """
    try:
        yield
    except KeyboardInterrupt:
        print_text(interrupted if isinstance(interrupted, str) else interrupted())
        raise typer.Exit(130) from None
    except (*EXPECTED, RuntimeError) as error:
        if isinstance(error, typer.Exit) or not (isinstance(error, EXPECTED) or is_out_of_memory(error)):
            raise  # a defect of the program: its traceback is needed
        print_error(sentence(error, weight_options))
        raise typer.Exit(2) from error


def sentence(error: Exception, weight_options: Mapping[str, str] | None = None) -> str:
    """Return the message of an error in terms of the command line."""
    if is_out_of_memory(error):
        return "not enough memory; try a smaller --size or --batch, or --device cpu"
    if isinstance(error, RunFolderError):
        return f"{error}; {FOLDER_ADVICE[error.problem]}"
    if isinstance(error, DivergedError):
        return f"{error}; try a lower {flags(error.settings)}"
    if isinstance(error, SettingError) and error.settings:
        return f"{error} ({flags(error.settings)})"
    if weight := getattr(error, "weight", ""):  # MissingWeights
        option = (weight_options or {}).get(weight)
        return error.sentence + (f", or give its path with {option}" if option else "")  # type: ignore[attr-defined]
    return str(error)


def flags(settings: tuple[str, ...]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in settings)


def is_out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)
