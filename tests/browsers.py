"""Chromium for tests. With EFDM_SCREENSHOTS=FOLDER, `screenshot` writes pictures for the documents."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("EFDM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
SCREENSHOTS = os.environ.get("EFDM_SCREENSHOTS")
needs_browser = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@contextmanager
def open_browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        flags = ["--no-sandbox", "--force-color-profile=srgb", *camera]
        opened = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


def screenshot(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.wait_for_timeout(500)
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.jpg", type="jpeg", quality=70, full_page=True)
