"""The commands in the guide to re-identification run on small copies of the data sets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from people import make_cuhk01, make_folders, make_grid, make_market, write_person
from test_documents import ROOT, blocks

from efdm.lab import recipes
from efdm.reid import PROTOCOLS

pytest.importorskip("typer")
pytest.importorskip("timm")

GUIDE = ROOT / "docs" / "guide" / "re-identification.md"
# start of a command -> options that make it small; an option given twice takes its last value
SMALL = {
    "efdm reid train": "--device cpu --iterations 1 --backbone osnet_x0_25 --size 64,32 --batch 4",
    "efdm reid run": "--device cpu --iterations 1 --weights random --seeds 1 --methods efdmix --set size=64,32 "
    "--set batch=4",
    "efdm reid test": "--device cpu",
    "efdm reid search": "--device cpu",
    "efdm reid": "",
}


def zipped(folder: Path) -> None:
    import shutil

    shutil.make_archive(str(folder), "zip", folder)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_commands_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from efdm.apps.cli.group import app

    monkeypatch.chdir(tmp_path)
    make_market(tmp_path / "Market-1501")
    make_grid(tmp_path / "GRID")
    make_cuhk01(tmp_path / "cuhk01")
    zipped(tmp_path / "cuhk01")
    (make_market(tmp_path / "half") / "bounding_box_train").rename(tmp_path / "train")
    (tmp_path / "market1501-train").mkdir()
    (tmp_path / "train").rename(tmp_path / "market1501-train" / "bounding_box_train")
    zipped(tmp_path / "market1501-train")
    make_folders(tmp_path / "street")
    write_person(tmp_path / "someone.jpg", 1, 1, 0)
    commands = [line for block in blocks(GUIDE.read_text(), "bash") for line in block.splitlines() if line.strip()]
    assert {command.split()[2] for command in commands} == {"train", "test", "search", "run", "table"}
    for command in commands:
        more = next(words for beginning, words in SMALL.items() if command.startswith(beginning))
        done = CliRunner().invoke(app, [*shlex.split(command), *shlex.split(more)][1:])
        assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception!r}"
        words = shlex.split(command)
        assert (tmp_path / words[words.index("-o") + 1]).exists(), command


def test_the_guide_names_all_recipes_and_protocols() -> None:
    text = GUIDE.read_text()
    for name in (*recipes("reid"), *PROTOCOLS):
        assert re.search(rf"^\| `{name}` \|", text, re.MULTILINE), name
