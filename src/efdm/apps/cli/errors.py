"""Errors as one sentence and an exit code: 2 for errors that the user can correct, 130 after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import typer

try:  # recent versions of typer contain click
    from typer._click.globals import get_current_context
except ImportError:
    from click import get_current_context  # type: ignore[no-redef]

from efdm.apps.cli.printing import print_error, print_message
from efdm.errors import FolderProblem, OutOfMemoryError, RunFolderError, is_out_of_memory

EXPECTED = (ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError)

# the options that resolve a problem with the folder of a run
FOLDER_OPTIONS: Mapping[FolderProblem, str] = {
    "started": "--resume, --out", "not started": "without --resume",
}  # fmt: skip
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@contextmanager
def report_errors(
    interrupted: str | Callable[[], str] = "interrupted", *, weight_options: Mapping[str, str] = NO_OPTIONS
) -> Iterator[None]:
    """Print an expected error as one sentence and exit with code 2, or with 130 after Ctrl-C.

    Args:
        interrupted: printed after Ctrl-C.
        weight_options: row of `efdm.models.weights.WEIGHTS` -> the option that takes its file.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        print_message(str(error) or (interrupted if isinstance(interrupted, str) else interrupted()))
        raise typer.Exit(130) from None
    except Exception as error:
        if not is_expected(error):
            raise
        print_error(sentence(error, weight_options))
        raise typer.Exit(2) from error


def is_expected(error: Exception) -> bool:
    """Return False for a defect in the program, which needs its traceback, and for `typer.Exit`."""
    return isinstance(error, EXPECTED) or is_out_of_memory(error)


def sentence(error: Exception, weight_options: Mapping[str, str] = NO_OPTIONS) -> str:
    """Return the message of an error, followed by the options that can resolve it."""
    if is_out_of_memory(error):
        text = str(error) if isinstance(error, OutOfMemoryError) else "not enough memory"
        on_gpu = "CUDA" in f"{error} {error.__cause__}"
        remedies = ["a smaller " + (_option("size") or "picture"), *(["--device cpu"] if on_gpu else [])]
        return f"{text}; try {' or '.join(remedies)}"
    if weight := getattr(error, "weight", ""):  # MissingWeights
        option = weight_options.get(weight)
        return error.sentence + (f", or pass its path with {option}" if option else "")  # type: ignore[attr-defined]
    options = ""
    if isinstance(error, RunFolderError):
        options = FOLDER_OPTIONS.get(error.problem, "--out")
    elif settings := getattr(error, "settings", ()):  # SettingError, DivergedError, PictureError
        options = ", ".join(filter(None, map(_option, settings)))
    return f"{error} ({options})" if options else str(error)


def _option(setting: str) -> str:
    """Return the option of the running command that changes a setting, or "" if it has none."""
    context = get_current_context(silent=True)
    accepted = {word for parameter in context.command.params for word in parameter.opts} if context else set()
    option = f"--{setting.replace('_', '-')}"
    if option in accepted:
        return option
    return f"--set {setting}" if "--set" in accepted and setting not in accepted else ""
