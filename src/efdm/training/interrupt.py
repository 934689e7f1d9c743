"""Ctrl-C and SIGTERM: finish the current step, then save."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; schedulers, services and `timeout`


@contextmanager
def unbroken() -> Iterator[None]:
    """Delay signals that stop the process until the end of this block, because a partial update cannot be saved."""
    # only the main thread receives signals; a handler that Python did not set (None) could not be restored
    handlers = {number: signal.getsignal(number) for number in STOPS if _in_main_thread()}
    before = {number: handler for number, handler in handlers.items() if handler is not None}
    received: list[int] = []
    for number in before:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for stop in dict.fromkeys(received):
            signal.raise_signal(stop)


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise KeyboardInterrupt on the first SIGTERM in this block and ignore later signals, which would interrupt saving.

    Does nothing where SIGTERM already has a handler, or outside the main thread.
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
