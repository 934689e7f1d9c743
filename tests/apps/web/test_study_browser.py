"""A preference study in a real browser, with simulated raters: `make test-browser`."""

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsers import needs_browser, open_browser, playwright, screenshot
from PIL import Image
from studies import COLORS, PREFERENCE, choose, small_study

from efdm.apps.web.study import serving_study
from efdm.style.study import Study, embedded_pairs, load_renders, make_study
from efdm.style.study_report import results

pytestmark = needs_browser
RATERS = 8


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


def labels_on(page: Any) -> list[str]:
    """Return the candidates of the options, recognized by their colour as a person would."""
    found = []
    for image in page.locator(".options img").all():
        data = page.request.get(image.evaluate("i => i.src")).body()
        pixel = np.array(Image.open(io.BytesIO(data)).convert("RGB"))[0, 0] / 255
        found.append(min(COLORS, key=lambda label: np.abs(pixel - COLORS[label]).sum()))
    return found


def rate(page: Any, study: Study, draw: random.Random, by: str) -> None:
    for done in range(len(study.items)):
        playwright.expect(page.locator("#progress")).to_have_js_property("value", done / len(study.items))
        order = labels_on(page)
        position = order.index(choose(order, draw))
        if by == "keyboard":
            page.keyboard.press(str(position + 1))
        else:
            page.locator(".options button").nth(position).tap()
    page.get_by_text("Thank you").wait_for()


def test_simulated_raters_with_keyboards_and_phones(browser: Any, tmp_path: Path) -> None:
    study, draw = small_study(tmp_path, pairs=8), random.Random(2)
    with serving_study(study) as address:
        for rater in range(RATERS):
            by = "keyboard" if rater % 2 else "phone"
            phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
            page = browser.new_context(**phone if by == "phone" else {}).new_page()
            page.goto(address)  # a context of its own is a person of its own
            page.locator(".options button").first.wait_for()
            if by == "phone":
                assert page.evaluate("document.documentElement.scrollWidth") <= 390
            rate(page, study, draw, by)
            page.context.close()
    votes = study.votes()
    assert len(votes) == RATERS * len(study.items)
    assert len({vote.rater for vote in votes}) == RATERS
    assert [r.label for r in results(study, votes)] == sorted(PREFERENCE, key=PREFERENCE.__getitem__, reverse=True)
    assert len({vote.position for vote in votes}) == 3


def test_reloading_continues_and_a_lost_connection_is_reported(browser: Any, tmp_path: Path) -> None:
    study = small_study(tmp_path, pairs=3)
    page = browser.new_context().new_page()
    with serving_study(study) as address:
        page.goto(f"{address}?rater=anna")
        page.locator(".options button").first.click()
        playwright.expect(page.locator("#progress")).to_have_js_property("value", 1 / 3)
        page.reload()
        playwright.expect(page.locator("#progress")).to_have_js_property("value", 1 / 3)
        page.locator(".options button").first.wait_for()
        page.context.set_offline(True)
        page.keyboard.press("1")
        page.get_by_text("not stored").wait_for()
        assert study.count("anna") == 1
        page.context.set_offline(False)
        page.keyboard.press("1")
        playwright.expect(page.locator("#progress")).to_have_js_property("value", 2 / 3)
        assert page.locator("#problem").inner_text() == ""
    assert [vote.rater for vote in study.votes()] == ["anna"] * 2
    page.context.close()


def test_the_page_of_the_guide(browser: Any, tmp_path: Path) -> None:
    pairs = embedded_pairs(1)
    study = make_study(tmp_path, pairs, load_renders(["small:efdm", "small:adain", "small:adamean"], pairs), size=256)
    page = browser.new_context(viewport={"width": 1000, "height": 640}).new_page()
    with serving_study(study) as address:
        page.goto(address)
        page.locator(".options img").nth(2).wait_for()
        page.wait_for_function("[...document.images].every(i => i.complete && i.naturalWidth)")
        screenshot(page, "study")
    page.context.close()
