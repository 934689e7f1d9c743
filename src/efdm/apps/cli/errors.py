"""Errors as one sentence and an exit code: 2 for errors that the user can correct, 130 after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

try:  # recent versions of typer contain click
    from typer._click.globals import get_current_context
except ImportError:
    from click import get_current_context  # type: ignore[no-redef]

from efdm.apps.cli.printing import print_error, print_message
from efdm.errors import OutOfMemoryError, describe_os_error, is_out_of_memory

# settings that some commands take from other options
ELSEWHERE = {"domains": "--data", "train_domains": "--data", "test_domains": "--test", "model": "--candidate"}
EXPECTED = (ValueError, TypeError, OSError, ImportError, FloatingPointError, MemoryError)


@contextmanager
def report_errors(interrupted: str | Callable[[], str] = "interrupted") -> Iterator[None]:
    """Print an expected error as one sentence and exit with 2. After Ctrl-C, print ``interrupted`` and exit with 130.

    Also a decorator. `efdm.apps.cli.group.load` decorates every command with the default message.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        print_message(str(error) or (interrupted if isinstance(interrupted, str) else interrupted()))
        raise typer.Exit(130) from None
    except Exception as error:
        if not is_expected(error):
            raise
        print_error(sentence(error))
        raise typer.Exit(2) from error


def is_expected(error: Exception) -> bool:
    """Return False for a defect in the program, which needs its traceback, for `typer.Exit`, and for a closed pipe.

    The pipe is closed when the reader of stdout ends, such as `head`; typer then exits without a message.
    """
    return (isinstance(error, EXPECTED) and not isinstance(error, BrokenPipeError)) or is_out_of_memory(error)


def sentence(error: Exception) -> str:
    """Return the message of an error, followed by the options that can resolve it."""
    if is_out_of_memory(error):
        named, size = isinstance(error, OutOfMemoryError), _option("size")
        remedies = {
            "make it smaller": named,  # a smaller --size does not help if the file itself does not fit
            f"try a smaller {size or 'picture'}": size or not named,
            "try --device cpu": "CUDA" in f"{error} {error.__cause__}",
        }
        advice = ", or ".join(text for text, applies in remedies.items() if applies)
        return f"{error if named else 'not enough memory'}; {advice}"
    if isinstance(error, OSError) and error.filename is not None:
        return describe_os_error(error, error.filename)
    options = ", ".join(filter(None, map(_option, getattr(error, "settings", ()))))
    return f"{error} ({options})" if options else str(error)


def _option(setting: str) -> str:
    """Return the option of the running command that changes a setting, or "" if it has none."""
    context = get_current_context(silent=True)
    accepted = {word for parameter in context.command.params for word in parameter.opts} if context else set()
    option = f"--{setting.replace('_', '-')}"
    if option in accepted:
        return option
    if setting in ELSEWHERE:
        return ELSEWHERE[setting] if ELSEWHERE[setting] in accepted else ""
    return f"--set {setting}" if "--set" in accepted and setting not in accepted else ""
