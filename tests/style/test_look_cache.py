from __future__ import annotations

from pathlib import Path

import pytest
import torch

from efdm.data import PictureError, write_picture
from efdm.style.look import LookCache, corner_weights
from efdm.style.stylizer import Stylizer


@pytest.fixture
def styles(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for path in paths:
        write_picture(path, torch.rand(3, 24, 32))
    return paths


def test_a_cached_look_equals_a_prepared_one(stylizer: Stylizer, styles: list[Path]) -> None:
    cache, content = LookCache(), torch.rand(3, 20, 28)
    weights = (0.2, 0.3, 0.5)
    direct = stylizer.stylize(content, stylizer.prepare(list(styles), weights=weights))
    for _ in range(2):
        assert torch.equal(stylizer.stylize(content, cache.prepare(stylizer, styles, weights=weights)), direct)
    assert len(cache) == 3


def test_a_copy_of_a_file_is_found(stylizer: Stylizer, styles: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LookCache()
    cache.prepare(stylizer, styles[:1])
    copy = styles[0].with_name("copy.png")
    copy.write_bytes(styles[0].read_bytes())
    monkeypatch.setattr(Stylizer, "prepare", lambda *_, **__: pytest.fail("prepared again"))
    cache.prepare(stylizer, [copy])
    with pytest.raises(pytest.fail.Exception):
        cache.prepare(stylizer, [copy], size=16)


def test_the_least_recently_used_style_is_dropped(stylizer: Stylizer, styles: list[Path]) -> None:
    probe = LookCache()
    probe.prepare(stylizer, styles[:1])
    cache = LookCache(max_bytes=2 * probe.bytes)
    for style in (*styles[:2], styles[0], styles[2]):
        cache.prepare(stylizer, [style])
    assert len(cache) == 2
    assert cache.bytes == 2 * probe.bytes
    made: list[object] = []
    plain = Stylizer.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylizer, "prepare", lambda *a, **k: (made.append(a), plain(*a, **k))[1])
        cache.prepare(stylizer, [styles[0]])
        assert not made
        cache.prepare(stylizer, [styles[1]])
        assert made


def test_a_look_that_was_used_does_not_grow_the_cache(stylizer: Stylizer, styles: list[Path]) -> None:
    cache = LookCache()
    stylizer.stylize(torch.rand(3, 64, 64), cache.prepare(stylizer, styles[:2]))
    assert not any(part._cache for look in cache._looks.values() for parts in look.features for part in parts)


def test_large_styles_are_refused(stylizer: Stylizer, styles: list[Path]) -> None:
    with pytest.raises(PictureError, match="32 x 24"):
        LookCache().prepare(stylizer, styles[:1], max_pixels=700)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_weights_on_the_square(count: int) -> None:
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    for i in range(count):
        weights = corner_weights(*corners[i], count=count)
        expected = [float(i == k) for k in range(count)]
        assert weights == pytest.approx(expected if count > 2 or i < 2 else weights)
    for x in (0.0, 0.3, 1.0):
        for y in (0.0, 0.6, 1.0):
            weights = corner_weights(x, y, count)
            assert sum(weights) == pytest.approx(1)
            assert min(weights) >= 0


@pytest.mark.parametrize(("x", "y", "count"), [(-0.1, 0, 4), (0, 1.1, 4), (float("nan"), 0, 4), (0, 0, 5), (0, 0, 0)])
def test_points_outside_the_square(x: float, y: float, count: int) -> None:
    with pytest.raises(ValueError, match=r"x and y|count"):
        corner_weights(x, y, count)
