"""Serve the page on this machine, and delete its files at the end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from efdm.apps.web.handlers import Handlers
from efdm.errors import SettingError, requires
from efdm.training.folder import LOCK, lock_folder

HOST = "127.0.0.1"
PREFIX = "efdm-app-"  # of the temporary folder
SIGNALS = (signal.SIGINT, signal.SIGTERM)
FONTS = ("system-ui", "sans-serif")  # the default theme would load fonts from the internet


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a temporary folder, in which Gradio keeps its files as well, and delete it at the end.

    Folders left behind by killed apps are deleted as well.
    """
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        # a running app holds its lock; folders of other users cannot be opened
        with suppress(Timeout, OSError, NotImplementedError), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent)
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name, lock_folder(Path(name)):
        folder = Path(name).resolve()
        settings = {"GRADIO_TEMP_DIR": str(folder), "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
        before = {key: os.environ.get(key) for key in settings}
        os.environ.update(settings)
        try:
            yield folder
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


@contextmanager
def serving(handlers: Handlers, *, port: int | None = None, share: bool = False) -> Iterator[tuple[str, str | None]]:
    """Serve the page in a background thread and yield its address and, if it is shared, its public address."""
    with requires("app"):
        import gradio as gr
    from efdm.apps.web.page import build_page

    page = build_page(handlers)
    try:
        _, local, public = page.launch(
            server_name=HOST, server_port=port, share=share, max_file_size=f"{handlers.limits.megabytes}mb", quiet=True,
            prevent_thread_lock=True, ssr_mode=False, run_history=False, footer_links=[], pwa=False, mcp_server=False,
            theme=gr.themes.Default(font=FONTS, font_mono=("monospace",)),
        )  # fmt: skip
    except OSError as error:  # Gradio's message is about its own settings
        raise SettingError(f"port {port or 'from 7860 to 7959'} is in use; choose another one", "port") from error
    try:
        yield local, public
    finally:
        handlers.close()
        page.close(verbose=False)


def serve(
    make: Callable[[Path], Handlers],
    *,
    port: int | None = None,
    share: bool = False,
    ready: Callable[[str, str | None], object] = lambda local, public: None,
) -> None:
    """Serve the page until SIGINT or SIGTERM, then delete uploads and results.

    Args:
        make: returns the handlers, given the folder for their results.
        port: defaults to the first free port from 7860.
        ready: called with the address of the page, and with its public address or None.
    """
    stop = threading.Event()
    before: dict[int, Any] = {number: signal.signal(number, lambda *_: stop.set()) for number in SIGNALS}
    try:
        with private_folder() as folder, serving(make(folder), port=port, share=share) as (local, public):
            ready(local, public)
            stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
