from __future__ import annotations

import sys
from pathlib import Path

import pytest
from dg_commands import run

from efdm.apps import dg_demo
from efdm.dg import load_classifier


def test_the_demo_leaves_a_table_a_plot_and_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    out = tmp_path / "demo"
    command = ("demo", "-o", out, "--iterations", 1, "--lanes", 1)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "12/12" in result.output
    rows = {
        line.split()[0]: line.split()[1:]
        for line in result.output.splitlines()
        if line.startswith(("erm ", "mixstyle ", "efdmix "))
    }
    assert list(rows) == ["erm", "mixstyle", "efdmix"]
    assert all(len(row) == 7 for row in rows.values())  # here, seeds, four domains, average
    assert "On average efdmix has" in result.output
    model = next(line for line in result.output.splitlines() if line.startswith("a trained classifier (efdmix, tested on "))
    assert load_classifier(model.partition("): ")[2]).classes == [str(digit) for digit in range(10)]
    hint = next(line for line in result.output.splitlines() if line.startswith("see its features: efdm dg "))
    assert run(*hint.split()[5:], "--per-domain", 5).exit_code == 0
    assert "±" not in result.output.replace("gives mean ± standard deviation", "")
    for name in (dg_demo.SHEET, dg_demo.PLOT, dg_demo.TABLES):
        assert (out / name).stat().st_size > 1000
        assert str(out / name) in result.output
    (out / dg_demo.PLOT).unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run(*command)
    assert result.exit_code == 0
    assert "the table as a plot: needs matplotlib" in result.output


def test_what_is_wrong_is_told_before_the_introduction(tmp_path: Path) -> None:
    result = run("demo", "-o", tmp_path / "demo", "--seeds", 0)
    assert result.exit_code == 2
    assert result.output.startswith("--seeds 0 is no count")


def test_with_several_seeds_the_deviation_is_explained_and_there_is_a_verdict(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    result = run("demo", "-o", tmp_path / "demo", "--iterations", 1, "--lanes", 1, "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert "Mean ± population standard deviation" in result.output
    assert "Between erm and efdmix no difference can be told at 2 seeds: efdmix - erm = " in result.output
