"""The command ``efdm``: one module per command, imported when the command is run."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process without a traceback, for example during imports, when there is nothing to save."""
    python_handler = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # background jobs ignore Ctrl-C
    if python_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if python_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    with quiet_interrupt():
        try:
            from efdm.apps.cli.group import app, quiet_readers
        except ModuleNotFoundError as error:
            sys.exit(f"{error.name} is not installed; run: pip install 'efdm[cli]'")
    quiet_readers()
    app()
