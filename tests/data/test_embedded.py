"""The embedded pictures are present, small, readable and credited."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from efdm.data.embedded import FOLDER, PHOTOS, STYLES, photos, read_style, styles

ROOT = Path(__file__).parents[2]
KIB = 1024


def test_photos_are_colour_pictures_of_a_useful_size_without_metadata() -> None:
    for path in photos().values():
        with Image.open(path) as picture:
            assert picture.mode == "RGB"
            assert 300 <= min(picture.size) <= max(picture.size) <= 640
            assert not picture.getexif()


def test_folder_holds_the_listed_pictures_and_their_credits() -> None:
    pictures = {f"{name}.webp" for name in (*PHOTOS, *STYLES, "digits")}
    assert {path.name for path in FOLDER.iterdir()} == pictures | {"CREDITS.md", "digits.txt"}
    credit_lines = (FOLDER / "CREDITS.md").read_text(encoding="utf-8").splitlines()
    for name in (*PHOTOS, *STYLES):
        (line,) = [line for line in credit_lines if f"`{name}.webp`" in line]
        assert name in STYLES or line.endswith(("| CC0 |", "| public domain |"))
    for paths, limit in ((photos(), 450), (styles(), 1500)):
        assert sum(path.stat().st_size for path in paths.values()) <= limit * KIB


def test_styles_have_contrast_at_any_size() -> None:
    for name, path in styles().items():
        with Image.open(path) as picture:
            assert picture.size == (512, 512)
        small = read_style(name, 33)
        assert (small.shape, small.dtype) == ((3, 33, 33), torch.float32)
        assert small.std() > 0.1
    with pytest.raises(ValueError, match="starry"):
        read_style("rococo")


def test_painters_still_make_the_shipped_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from tools.paint_styles import PAINTERS, paint

    assert set(PAINTERS) == set(STYLES)
    painted = torch.from_numpy(np.ascontiguousarray(paint("glass", 128)))
    assert (painted - read_style("glass", 128)).abs().mean() < 0.03
