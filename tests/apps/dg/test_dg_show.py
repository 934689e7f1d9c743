from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

from dg_commands import run, studying

from efdm.apps import dg_show
from efdm.lab import read_study
from efdm.progress import Progress


def test_at_a_terminal_a_sentence_stands_once_and_lines_fit(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from efdm.lab import tables

    assert run(*studying(recipe, pictures, tmp_path / "out")).exit_code == 0
    with (tmp_path / "screen").open("w") as file:
        made = tables(read_study(tmp_path / "out"))
        dg_show.show_tables(Console(file=file, force_terminal=True, width=90, color_system=None), made)
    text = (tmp_path / "screen").read_text()
    assert " ".join(text.split()).count("Columns: test domain") == 1
    assert "source" not in text  # every row is ours
    assert all(len(line) <= 90 for line in text.splitlines())


def test_the_bar_of_all_trainings_moves_with_each_of_them() -> None:
    from rich.console import Console

    with dg_show.Bars(Console(file=StringIO(), force_terminal=True)) as bars:
        bars.report(Progress("runs", 2, 4))
        for name, iteration in (("a", 50), ("b", 25), ("a", 100)):
            bars.report(Progress(name, iteration, 100, {"loss": 0.5, "per_second": 7.0}))
        whole, *others = bars._shown.bars.tasks
        assert (whole.completed, whole.total, whole.fields["count"]) == (3.25, 4, "3/4")
        assert [task.description for task in others] == ["b"]  # the other one is finished


def test_a_log_has_lines_of_reading_of_each_training_and_of_all(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    lines = run(*studying(recipe, pictures, tmp_path / "out", "--domains", "day")).output.splitlines()
    assert "reading pictures: 36/36" in lines
    assert "runs: 0/2" in lines
    assert re.match(r"erm, fog, rain -> day, seed 0: 1/2, 0:00:0\d left, [\d.]+/s, loss [\d.]+$", lines[3]), lines
    assert "runs: 2/2" in lines
