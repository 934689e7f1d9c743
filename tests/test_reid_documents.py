"""The commands in the guide to re-identification run on small copies of the data sets."""

import re
import shutil
from pathlib import Path

import pytest
from people import make_cuhk01, make_folders, make_grid, make_market, write_person
from test_documents import ROOT, commands, run_commands

from efdm.lab import recipes
from efdm.reid import PROTOCOLS

pytest.importorskip("typer")

GUIDE = ROOT / "docs" / "guide" / "re-identification.md"
# see `run_commands`
SMALL = {
    "efdm reid train": "--device cpu --iterations 1 --backbone osnet_x0_25 --size 64,32 --batch 4",
    "efdm reid run": "--device cpu --iterations 1 --weights random --seeds 1 --methods efdmix --set size=64,32 "
    "--set batch=4",
    "efdm reid test": "--device cpu",
    "efdm reid search": "--device cpu",
    "efdm reid": "",
}


def zipped(folder: Path) -> None:
    shutil.make_archive(str(folder), "zip", folder)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_commands_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_market(tmp_path / "Market-1501")
    make_grid(tmp_path / "GRID")
    make_cuhk01(tmp_path / "cuhk01")
    zipped(tmp_path / "cuhk01")
    half = "bounding_box_train"
    shutil.copytree(tmp_path / "Market-1501" / half, tmp_path / "market1501-train" / half)
    zipped(tmp_path / "market1501-train")
    make_folders(tmp_path / "street")
    write_person(tmp_path / "someone.jpg", 1, 1, 0)
    lines = commands(GUIDE.read_text())
    assert {line.split()[2] for line in lines} == {"train", "test", "search", "run", "table"}
    run_commands(lines, tmp_path, SMALL)


def test_the_guide_names_all_recipes_and_protocols() -> None:
    text = GUIDE.read_text()
    for name in (*recipes("reid"), *PROTOCOLS):
        assert re.search(rf"^\| `{name}` \|", text, re.MULTILINE), name
