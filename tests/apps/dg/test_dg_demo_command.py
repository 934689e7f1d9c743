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
        line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.startswith(("erm", "mix", "efd"))
    }
    assert list(rows) == ["erm", "mixstyle", "efdmix"]
    assert all(len(row) == 7 for row in rows.values())  # here, seeds, four domains, average
    assert "On average efdmix has" in result.output
    model = next(line for line in result.output.splitlines() if line.startswith("a trained classifier: ")).split(": ")[1]
    assert load_classifier(model).classes == [str(digit) for digit in range(10)]
    for name in (dg_demo.SHEET, dg_demo.PLOT, dg_demo.TABLES):
        assert (out / name).stat().st_size > 1000
        assert str(out / name) in result.output
    (out / dg_demo.PLOT).unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run(*command)
    assert result.exit_code == 0
    assert "the table as a plot: needs matplotlib" in result.output
