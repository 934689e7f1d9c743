from pathlib import Path

import pytest
import torch
from commands import invoke

from efdm.data import read_picture
from efdm.models import build
from efdm.models.weights import save_network
from efdm.progress import Progress
from efdm.style import demo
from efdm.style.stylizer import Stylizer

SIDE = 32


def run(*arguments: object, out: Path | str = "sheets", code: int = 0):
    return invoke("demo", "-o", out, "--device", "cpu", *arguments, code=code)


def test_the_command_writes_the_sheets_and_prints_their_paths(tmp_path: Path) -> None:
    weights, out = tmp_path / "network.safetensors", tmp_path / "sheets"
    save_network(build("small"), weights, {})
    result = run("--weights", weights, "--side", SIDE, out=out)
    assert sorted(p.name for p in out.iterdir()) == sorted(demo.SHEETS)
    assert all(str(out / name) in result.output for name in demo.SHEETS)
    assert f"stylizing: {demo.PICTURES}/{demo.PICTURES}" in result.output
    contact = read_picture(out / "contact-sheet.png").rgb
    assert contact.shape[2] > (len(demo.PAINTINGS) + 1) * SIDE
    assert contact.shape[1] > (len(demo.PHOTOS) + 1) * SIDE


def test_a_folder_that_cannot_be_created_is_reported_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run(out=tmp_path / "file" / "sheets", code=2)
    assert "file/sheets cannot be created" in result.output
    assert "stylizing" not in result.output


def test_the_corners_of_the_grid_are_single_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reports = list[torch.Tensor](), list[Progress]()
    stylize = demo.Studio.stylize
    monkeypatch.setattr(demo.Studio, "stylize", lambda *args: made.append(stylize(*args)) or made[-1])
    studio = demo.Studio(Stylizer(build("small"), "cpu"), SIDE, reports.append)
    demo.four_styles(studio)
    for index, name in zip((0, 4, 20, 24), demo.CORNERS, strict=True):
        single = stylize(studio, demo.CORNER_PHOTO, studio.look(name))
        assert (made[index] - single).abs().mean() < 1e-3
    assert [report.done for report in reports] == list(range(1, demo.STEPS**2 + 5))
