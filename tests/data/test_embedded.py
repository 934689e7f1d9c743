"""The embedded photos: present, small, readable, and credited as data and in words."""

from __future__ import annotations

from importlib.resources import files

import pytest
from PIL import Image

from efdm.data.embedded import PHOTOS, credits_table, photo, photos

FREE = ("CC0", "public domain")
KIB = 1024


@pytest.mark.parametrize("name", PHOTOS)
def test_opens_as_a_colour_picture_of_a_useful_size(name: str) -> None:
    with Image.open(photos()[name]) as picture:
        assert picture.mode == "RGB"
        assert min(picture.size) >= 300
        assert max(picture.size) <= 640
        picture.load()


@pytest.mark.parametrize("name", PHOTOS)
def test_is_free_and_says_whose_it_is(name: str) -> None:
    row = PHOTOS[name]
    assert row.licence in FREE
    assert row.what
    assert row.author
    assert row.source


def test_the_folder_holds_the_table_and_nothing_else() -> None:
    found = {entry.name for entry in (files("efdm.data") / "pictures").iterdir()}
    assert found == {row.file for row in PHOTOS.values()} | {"CREDITS.md"}


def test_the_credits_in_words_agree_with_the_table() -> None:
    assert (files("efdm.data") / "pictures" / "CREDITS.md").read_text(encoding="utf-8").endswith("\n\n" + credits_table())


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in photos().values()) <= 450 * KIB


def test_carries_no_metadata() -> None:
    for path in photos().values():
        with Image.open(path) as picture:
            assert not picture.getexif()


def test_says_which_photos_there_are() -> None:
    with pytest.raises(ValueError, match="astronaut"):
        photo("zebra")
