"""The command `efdm match`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("typer")

from typer.testing import CliRunner

from efdm.apps.cli.group import app


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["match", *map(str, words), "--device", "cpu"], env={"COLUMNS": "300"})
    return done.exit_code, done.output


def pixels(path: str) -> np.ndarray:
    return np.asarray(Image.open(path))


def test_a_picture(place: Path) -> None:
    assert run("photo.png", "--reference", "style.png", "-o", "new/out.png") == (0, "new/out.png\n")
    assert (np.sort(pixels("new/out.png").reshape(-1, 3), 0) == np.sort(pixels("style.png").reshape(-1, 3), 0)).all()


def test_a_folder_with_a_damaged_file(place: Path) -> None:
    Path("contents/broken.png").write_bytes(b"none")
    code, output = run("contents", "--reference", "styles", "--space", "lab", "-o", "out")
    assert code == 1
    assert "broken.png" in output
    assert "2 pictures in out" in output
    assert sorted(p.name for p in Path("out").rglob("*.png")) == ["a.png", "b.png"]


def test_a_mistake_names_its_option(place: Path) -> None:
    for option, value in (("--space", "cmyk"), ("--strength", 3), ("--ties", "none"), ("--method", "all")):
        code, output = run("photo.png", "--reference", "style.png", "-o", "out.png", option, value)
        assert code == 2
        assert option in output
    code, output = run("nowhere.png", "--reference", "style.png", "-o", "out.png")
    assert code == 2
    assert "nowhere.png" in output
