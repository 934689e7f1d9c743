"""The web app in a real browser: `make test-browser`."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browsers import needs_browser, open_browser, playwright, screenshot
from PIL import Image
from web_files import classifier, clip, photo

from efdm.apps.web.handlers import Handlers, Limits
from efdm.apps.web.server import private_folder, serving
from efdm.data import read_picture
from efdm.data.embedded import photos, styles
from efdm.style import Stylizer

pytest.importorskip("gradio")

pytestmark = needs_browser
SLOW = 60_000  # milliseconds; the first request compiles kernels


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("classifiers")
    paths = {name: classifier(place / f"{name}.safetensors", seed) for seed, name in enumerate(("ERM", "EFDMix"))}
    limits = Limits(seconds=2, concurrency=2)
    with private_folder() as folder, serving(Handlers(folder, classifiers=paths, limits=limits)) as (local, _):
        yield local


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def open_page(browser: Any, address: str) -> Any:
    page = browser.new_context(viewport={"width": 1180, "height": 960}).new_page()
    page.set_default_timeout(SLOW)
    page.goto(address)
    page.get_by_role("tab", name="Stylize").wait_for()
    return page


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    opened = open_page(browser, address)
    yield opened
    opened.context.close()


def upload(page: Any, *files: Path, index: int = 0) -> None:
    page.locator("[role=tabpanel]:visible input[type=file]").nth(index).set_input_files(files)
    page.wait_for_timeout(300)
    page.wait_for_load_state("networkidle")


def fetch(page: Any, locator: Any) -> torch.Tensor:
    """Return the picture that an element shows, as ``(h, w, 3)`` of uint8."""
    data = page.request.get(locator.get_attribute("src")).body()
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB")))


def result(page: Any) -> torch.Tensor:
    picture = page.locator("#result img").nth(1)
    picture.wait_for(state="attached", timeout=SLOW)  # a picture outside the viewport is loaded later
    return fetch(page, picture)


def expected(path: Path, style: Any = "starry", **options: Any) -> torch.Tensor:
    made = Stylizer.from_pretrained("small", "cpu").stylize(path, style, size=512, **options)
    return torch.from_numpy(np.array(made.to_pil()))


def test_from_an_upload_to_the_picture_of_the_python_call(page: Any) -> None:
    cat = photos()["cat"]
    upload(page, cat)
    page.get_by_role("button", name="Stylize").click()
    made = result(page)
    assert torch.equal(made, expected(cat))
    original = torch.from_numpy(np.array(read_picture(cat).to_pil()))
    assert (made.float() - original.float()).abs().mean() > 10
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").last.click()
    assert download.value.suggested_filename == "cat__starry.png"
    screenshot(page, "app-stylize")


def test_a_picture_of_the_webcam(page: Any) -> None:
    page.context.grant_permissions(["camera"])
    page.get_by_label("Capture from camera").first.click()
    page.get_by_text("Click to Access Webcam").click()
    page.wait_for_function("[...document.querySelectorAll('video')].some(v => v.readyState >= 3 && v.videoWidth)")
    with page.expect_response(lambda answer: "/upload" in answer.url):
        page.get_by_label("capture photo").click()
    page.locator(
        "[role=tabpanel]:visible [aria-label*='lear'], [role=tabpanel]:visible [aria-label*='emove']"
    ).first.wait_for()
    page.get_by_role("button", name="Stylize").click()
    assert result(page).float().std() > 10


def test_the_mixing_pad(page: Any, tmp_path: Path) -> None:
    cat = photo(tmp_path / "cat.png")
    upload(page, cat)
    page.locator(".painted button", has_text="wave").first.click()
    pad = page.locator(".pad .corner").first.locator("..")
    pad.get_by_text("wave").wait_for()
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 20, box["y"] + 60, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Stylize").click()
    assert torch.equal(result(page), expected(cat, "wave"))
    pad.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    shown = page.locator("#result img").nth(1).get_attribute("src")
    page.get_by_role("button", name="Stylize").click()
    playwright.expect(page.locator("#result img").nth(1)).not_to_have_attribute("src", shown, timeout=SLOW)
    assert (result(page).float() - expected(cat, ["starry", "wave"]).float()).abs().max() <= 1


def test_own_styles(page: Any, tmp_path: Path) -> None:
    cat, own = photo(tmp_path / "cat.png"), tmp_path / "own.webp"
    own.write_bytes(styles()["fauve"].read_bytes())
    upload(page, cat)
    page.get_by_label("Remove starry").or_(page.locator(".styles .token-remove")).first.click()
    upload(page, own, index=-1)
    page.locator(".pad .corner", has_text="own").wait_for()
    page.get_by_role("button", name="Stylize").click()
    assert torch.equal(result(page), expected(cat, own))


def test_a_wrong_file_shows_a_message(page: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(photo(tmp_path / "cat.png").read_bytes()[:500])
    upload(page, broken)
    page.get_by_role("button", name="Stylize").click()
    page.get_by_text("broken.png is cut short or damaged").wait_for(timeout=SLOW)
    assert page.locator("#result img").count() == 0


def test_two_users_at_once(browser: Any, address: str, tmp_path: Path) -> None:
    pages = [open_page(browser, address) for _ in range(2)]
    names = ("coffee", "rocket")
    paths = [photo(tmp_path / f"{name}.png", name) for name in names]
    for page, path in zip(pages, paths, strict=True):
        upload(page, path)
    for page in pages:
        page.get_by_role("button", name="Stylize").click()
    for page, path in zip(pages, paths, strict=True):
        assert torch.equal(result(page), expected(path))
        page.context.close()


def test_a_comparison(page: Any, tmp_path: Path) -> None:
    cat = photo(tmp_path / "cat.png", side=256)
    page.get_by_role("tab", name="Compare").click()
    upload(page, cat)
    page.get_by_role("button", name="Compare").click()
    page.locator("#comparison img").nth(1).wait_for(timeout=SLOW)
    page.get_by_text("small, adain").first.wait_for()
    screenshot(page, "app-compare")


def test_a_video(page: Any, tmp_path: Path) -> None:
    page.get_by_role("tab", name="Video").click()
    upload(page, clip(tmp_path / "clip.mp4"))
    page.get_by_role("button", name="Stylize").click()
    video = page.locator("#video-result video")
    video.wait_for(timeout=SLOW)
    page.wait_for_function("document.querySelector('#video-result video').readyState >= 1", timeout=SLOW)
    assert video.evaluate("v => v.duration") == pytest.approx(1, abs=0.2)
    video.evaluate("v => v.play()")
    page.wait_for_function("document.querySelector('#video-result video').webkitAudioDecodedByteCount > 0")
