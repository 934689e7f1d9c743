from __future__ import annotations

import re
from pathlib import Path

import pytest
from dg_commands import run, studying
from rich.console import Console

from efdm.apps.cli.report import print_tables
from efdm.lab import read_study, tables


@pytest.fixture
def study(recipe: Path, pictures: Path, tmp_path: Path) -> Path:
    run(*studying(recipe, pictures, tmp_path / "out"))
    return tmp_path / "out"


def test_tables_fit_the_width_of_a_terminal(study: Path, tmp_path: Path) -> None:
    with (tmp_path / "screen").open("w") as file:
        print_tables(tables(read_study(study)), Console(file=file, force_terminal=True, width=90, color_system=None))
    text = (tmp_path / "screen").read_text()
    assert "source" not in text  # no row is from the literature
    assert all(len(line) <= 90 for line in text.splitlines())


def test_a_log_reports_reading_each_run_and_all_runs(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    lines = run(*studying(recipe, pictures, tmp_path / "out", "--domains", "day")).output.splitlines()
    assert "reading pictures: 36/36" in lines
    assert "runs: 0/2" in lines
    assert any(re.match(r"erm, tested on day, seed 0.*: 1/2.*loss [\d.]+$", line) for line in lines), lines
    assert "runs: 2/2" in lines
