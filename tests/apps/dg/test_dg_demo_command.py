from dataclasses import replace
from pathlib import Path

import pytest
from dg_commands import run
from dg_runs import small_digits

from efdm import lab
from efdm.dg import load_classifier
from efdm.lab import demo


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.lab.sweep.load_dataset", lambda *_, **__: small_digits())


def test_the_demo_leaves_a_table_a_plot_and_a_sheet(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    result = run("demo", "-o", out, "--iterations", 1, "--lanes", 1)
    assert "12/12" in result.output
    lines = result.output.splitlines()
    rows = {
        line.split()[0]: line.split()[1:]
        for line in lines
        if line.startswith(("erm ", "mixstyle ", "efdmix ")) and "tested on" not in line
    }
    assert list(rows) == ["erm", "mixstyle", "efdmix"]
    assert all(len(row) == 7 for row in rows.values())  # source, seeds, four domains, average
    assert "Average accuracy: efdmix" in result.output
    model = next(line for line in lines if line.startswith("a trained classifier (efdmix, tested on "))
    assert load_classifier(model.partition("): ")[2]).classes == [str(digit) for digit in range(10)]
    hint = next(line for line in lines if "efdm dg analyse" in line)
    run(*hint.partition("efdm dg ")[2].split(), "--per-domain", 5)
    for name in (demo.SHEET, demo.PLOT, demo.TABLES):
        assert (out / name).stat().st_size > 1000
        assert str(out / name) in result.output


def test_wrong_seeds_are_refused_before_the_introduction(tmp_path: Path) -> None:
    assert run("demo", "-o", tmp_path / "demo", "--seeds", 0, code=2).output.startswith("seeds must be")


def test_several_seeds_give_a_deviation_and_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = lab.load_recipe(demo.RECIPE)
    two_methods = replace(recipe, methods={"erm": {}, "efdmix": {}}, orders=(("erm", "efdmix"),), contrasts=())
    monkeypatch.setattr("efdm.lab.demo.load_recipe", lambda _: two_methods)
    result = run("demo", "-o", tmp_path / "demo", "--iterations", 1, "--lanes", 1, "--seeds", 2)
    assert "Mean ± population standard deviation" in result.output
    assert "efdmix - erm = " in result.output
