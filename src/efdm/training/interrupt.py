"""Ctrl-C in the middle of something that must not be cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def unbroken() -> Iterator[None]:
    """Ctrl-C waits until the end of this: half an update could not be saved."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals arrive elsewhere
        return
    asked: list[Any] = []
    usual = signal.signal(signal.SIGINT, lambda *told: asked.append(told))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual or signal.default_int_handler)
    if asked and callable(usual):
        usual(*asked[0])
