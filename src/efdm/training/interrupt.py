"""Ctrl-C and SIGTERM: work that can be saved is saved, and what must not be cut in two is not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; clusters, services and `timeout`


@contextmanager
def unbroken() -> Iterator[None]:
    """Whoever wants to stop the process waits until the end of this: half an update could not be saved."""
    # signals arrive in the main thread alone; a handler that is not Python's (None) could not be put back
    usual = {number: signal.getsignal(number) for number in STOPS} if _in_main_thread() else {}
    usual = {number: handler for number, handler in usual.items() if handler is not None}
    asked: list[int] = []
    for number in usual:
        signal.signal(number, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    for told in dict.fromkeys(asked):
        signal.raise_signal(told)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM is a Ctrl-C in this block, so that work is saved. One alone: the next ones must not interrupt the saving.

    Where somebody else listens to it, or where no signals arrive, nothing is changed.
    """
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends two
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
