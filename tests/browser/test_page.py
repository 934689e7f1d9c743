"""The page of `docs/browser` in Chromium. The tests need playwright, Chromium, and onnxruntime-web from `make browser`."""

import base64
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browsers import needs_browser, open_browser, screenshot
from torch import Tensor

from efdm.data import read_picture, resize, write_picture
from efdm.data.embedded import photos, read_style
from efdm.style import Stylizer
from efdm.style.pictures import open_picture

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ROOT = Path(__file__).parents[2]
RUNTIME = Path(os.environ.get("ORT_WEB", ROOT / "build/browser/node_modules/onnxruntime-web"))
NO_RUNTIME = "onnxruntime-web is not installed; run make browser"

pytestmark = [*needs_browser, pytest.mark.skipif(not RUNTIME.is_dir(), reason=NO_RUNTIME)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("make_page", ROOT / "docs/browser/make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = tmp_path_factory.mktemp("page") / "stylize.html"
    module.make_page(out, RUNTIME)
    return out


@pytest.fixture(scope="module")
def page(file: Path) -> Iterator[Any]:
    """Open the file itself, offline and without a server, and wait for its first picture."""
    with open_browser() as browser:
        context = browser.new_context(offline=True, viewport={"width": 1000, "height": 760})
        opened = context.new_page()
        opened.requests = []
        opened.on("request", lambda request: opened.requests.append(request.url))
        opened.goto(file.as_uri())
        wait(opened)
        yield opened


def wait(page: Any, kind: str = "done") -> str:
    page.wait_for_selector(f"#status.{kind}", timeout=120_000)
    return page.inner_text("#status")


def act(page: Any, change: Any) -> str:
    """Make a change and wait until the page has stylized with it."""
    page.evaluate("document.getElementById('status').className = ''")
    change()
    return wait(page)


def result(page: Any) -> Tensor:
    url = page.evaluate("document.getElementById('result').toDataURL('image/png')")
    return open_picture(base64.b64decode(url.partition(",")[2])).rgb


def test_the_page_equals_python_and_loads_nothing(page: Any, tmp_path: Path) -> None:
    content, style = resize(read_picture(photos()["cat"]).rgb, (131, 170)), read_style("wave", 120)
    write_picture(tmp_path / "content.png", content)
    write_picture(tmp_path / "style.png", style)
    act(page, lambda: page.set_input_files("#content-file", tmp_path / "content.png"))
    act(page, lambda: page.set_input_files("#style-file", tmp_path / "style.png"))
    stylizer = Stylizer.from_pretrained("small", "cpu")
    for strength in (1.0, 0.4):
        move = f"s = document.getElementById('strength'); s.value = {strength}; s.dispatchEvent(new Event('change'))"
        act(page, lambda: page.evaluate(move))
        expected = stylizer.stylize(tmp_path / "content.png", tmp_path / "style.png", strength=strength).rgb
        made = result(page)
        assert made.shape == expected.shape == (3, 131, 170)
        assert (made - expected).abs().mean() <= 2 / 255
        assert (made - content).abs().mean() > 10 / 255
    assert not [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))]


def test_the_guide_states_its_size(file: Path) -> None:
    assert f"a page of {file.stat().st_size / 1e6:.0f} MB" in (ROOT / "docs/guide/export.md").read_text()


def test_painted_styles_and_sizes(page: Any) -> None:
    act(page, lambda: page.click("#gallery button:nth-child(1)"))
    first = result(page)
    seconds = act(page, lambda: page.click("#gallery button:nth-child(2)"))
    assert re.fullmatch(r"\d+\.\d s", seconds)
    assert not torch.equal(first, result(page))
    act(page, lambda: page.set_input_files("#content-file", photos()["rocket"]))
    act(page, lambda: page.select_option("#side", "256"))
    assert min(result(page).shape[1:]) == 256
    assert page.get_attribute("#download", "href").startswith("blob:")
    screenshot(page, "page")


def test_a_file_that_is_not_a_picture_is_reported_and_the_page_goes_on(page: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("no picture")
    page.set_input_files("#content-file", tmp_path / "notes.png")
    assert "not a picture" in wait(page, "error")
    act(page, lambda: page.set_input_files("#content-file", photos()["coffee"]))
