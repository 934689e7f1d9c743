from pathlib import Path

import pytest
from dg_commands import run, studying
from rich.console import Console

from efdm.apps.cli.recognition_printing import print_tables
from efdm.lab import read_study, tables


def test_tables_of_a_run_in_every_format(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run(*studying(recipe, pictures, out))
    assert run("table", out).output.count("training-domain validation (step") == 1
    assert "| method | source |" in run("table", out, "--format", "markdown").output
    lines = run("table", out, "--format", "csv").output.splitlines()
    assert [line.split(",")[0] for line in lines] == ["method", "erm", "efdmix"]
    assert run("table", out, "--format", "md").output.startswith("### small: last")  # a file extension
    files = {
        "a.md": "### small: last", "a.csv": "method,source,seeds,day mean,day population std", "a.txt": "small: last",
        "a": "small: last", "a.tex": "% small: last",
    }  # fmt: skip
    for name, begin in files.items():
        run("table", out, "-o", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(begin)
    with (tmp_path / "screen").open("w") as file, monkeypatch.context() as patch:
        terminal = Console(file=file, force_terminal=True, width=90, color_system=None)
        patch.setattr("efdm.apps.cli.recognition_printing.console", terminal)
        print_tables(tables(read_study(out)))
    screen = (tmp_path / "screen").read_text()
    assert "source" not in screen  # no row is from the literature
    assert all(len(line) <= 90 for line in screen.splitlines())
    one = run("table", out, "--selection", "oracle", "--std", "sample")
    assert "small: oracle" in one.output
    assert "small: last" not in one.output


def test_only_the_selections_of_the_recipe_are_available(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    recipe.write_text(recipe.read_text().replace("methods=", "selections=('last',), methods=", 1))
    run(*studying(recipe, pictures, tmp_path / "out"))
    assert "selection='oracle'" in run("table", tmp_path / "out", "--selection", "oracle", code=2).output
    recipe.write_text(recipe.read_text().replace("('last',)", "('last', 'oracle')", 1))
    run(*studying(recipe, pictures, tmp_path / "out"))
    assert "small: oracle" in run("table", tmp_path / "out", "--selection", "oracle").output


def test_folders_of_two_recipes_are_refused(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    other = recipe.with_name("other.py")
    other.write_text(recipe.read_text())
    for each in (recipe, other):
        run(*studying(each, pictures, tmp_path / each.stem))
    last = run("table", tmp_path / "small", tmp_path / "other", code=2).output.splitlines()[-1]
    assert "recipes 'small' and 'other'" in last
    assert "--out" not in last  # the file that the command writes


def test_the_folder_of_a_single_run_is_refused(trained: Path) -> None:
    assert "holds a single run" in run("table", trained, code=2).output


@pytest.mark.parametrize(
    ("more", "message"), [((), "recipe.json"), (("--format", "pdf"), "'pdf'"), (("-o", "table.pdf"), "table.pdf")]
)
def test_wrong_arguments_are_named(tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    assert message in run("table", tmp_path, *more, code=2).output
