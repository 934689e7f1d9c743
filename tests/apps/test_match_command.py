"""The command `efdm match`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from commands import invoke
from PIL import Image

run = partial(invoke, "match", "--device", "cpu")


def pixels(path: str) -> np.ndarray:
    return np.asarray(Image.open(path))


def test_a_picture(place: Path) -> None:
    assert run("photo.png", "--reference", "style.png", "-o", "new/out.png").output == "new/out.png\n"
    assert (np.sort(pixels("new/out.png").reshape(-1, 3), 0) == np.sort(pixels("style.png").reshape(-1, 3), 0)).all()


def test_a_folder_with_a_damaged_file(place: Path) -> None:
    Path("contents/broken.png").write_bytes(b"none")
    output = run("contents", "--reference", "styles", "--space", "lab", "-o", "out", code=1).output
    assert "broken.png" in output
    assert "2 pictures in out" in output
    assert sorted(p.name for p in Path("out").rglob("*.png")) == ["a.png", "b.png"]


def test_a_mistake_names_its_option(place: Path) -> None:
    for option, value in (("--space", "cmyk"), ("--strength", 3), ("--ties", "none"), ("--method", "all")):
        assert option in run("photo.png", "--reference", "style.png", "-o", "out.png", option, value, code=2).output
    assert "nowhere.png" in run("nowhere.png", "--reference", "style.png", "-o", "out.png", code=2).output
