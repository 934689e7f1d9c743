"""Chromium for tests. With EFDM_SCREENSHOTS=FOLDER, `screenshot` writes pictures for the documents."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("EFDM_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SCREENSHOTS = os.environ.get("EFDM_SCREENSHOTS")
needs_browser = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@contextmanager
def open_browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *camera])
        yield opened
        opened.close()


def screenshot(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.wait_for_timeout(500)
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.jpg", type="jpeg", quality=70, full_page=True)
