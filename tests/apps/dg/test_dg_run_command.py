from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dg_commands import RECIPE, Interrupted, draw, run, runs_of, studying, training

from efdm.data import datasets
from efdm.data.pacs import CLASSES, PICTURES
from efdm.lab import read_study
from efdm.training.folder import lock_folder


def test_a_recipe_is_run_and_its_table_printed_and_nothing_is_repeated(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = studying(recipe, pictures, tmp_path / "out", "--note", "Pictures [are] noise.")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "6/6" in result.output
    assert "method  source  seeds" in result.output
    assert "average" in result.output
    assert "Pictures [are] noise." in result.output
    assert f"efdm dg table {tmp_path / 'out'}" in result.output
    settings = next(iter(read_study(tmp_path / "out").plan)).settings
    assert (settings["device"], settings["precision"], settings["speed"]) == ("cpu", "fp32", "plain")
    before = runs_of(tmp_path / "out")
    assert len(before) == len(set(before)) == 6
    Interrupted(monkeypatch, after=0)  # a step would be an interruption
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert runs_of(tmp_path / "out") == before


def test_a_wrong_stage_is_told_before_erm_is_trained(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    result = run(*studying(recipe, pictures, tmp_path / "out", "--set", "stages=stage1,layr2"))
    assert result.exit_code == 2
    assert "has no stage 'layr2'" in result.output
    assert not (tmp_path / "out").exists()
    result = run(*studying(recipe, pictures, tmp_path / "out"))  # put right, in the same folder
    assert result.exit_code == 0, result.output


def test_an_interrupted_run_says_how_to_go_on_and_goes_on(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = studying(recipe, pictures, tmp_path / "out")
    with monkeypatch.context() as patched:
        first = Interrupted(patched, after=4)  # in the first iteration of the third training
        result = run(*command)
    assert result.exit_code == 130
    told = f"the same command goes on where it stopped; efdm dg table {tmp_path / 'out'} shows what is finished"
    assert told in result.output
    finished = runs_of(tmp_path / "out")
    assert len(finished) == 2
    assert "Incomplete" in run("table", tmp_path / "out").output
    second = Interrupted(monkeypatch, after=100)
    assert run(*command).exit_code == 0
    assert not set(finished) & set(second.seen)
    assert sorted(Counter(second.seen).values()) == [1, 2, 2, 2]  # of one's two iterations, one was behind it
    assert sorted(runs_of(tmp_path / "out")) == sorted({*first.seen, *second.seen})


def test_a_run_with_a_training_that_explodes_shows_the_others_and_names_it(
    recipe: Path, pictures: Path, tmp_path: Path
) -> None:
    text = recipe.read_text()
    assert '"efdmix": {}' in text
    recipe.write_text(text.replace('"efdmix": {}', '"efdmix": {"lr": 1e30, "iterations": 4}'))
    result = run(*studying(recipe, pictures, tmp_path / "out"))
    assert result.exit_code == 2
    assert "0 of 1 seed " in result.output
    assert "3 of 6 runs came to no end, all others did: the loss is" in result.output
    assert "of efdmix (on day, night, seed 0" in result.output
    assert len(runs_of(tmp_path / "out")) == 3


def test_a_row_with_a_comma_can_be_asked_for(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    part = ("--methods", "efdmix, often", "--methods", "erm", "--domains", "day", "--seeds", "1,")
    result = run("run", recipe, "--data", pictures, "-o", tmp_path / "out", "--device", "cpu", *part)
    assert result.exit_code == 0, result.output
    assert [(p.row, p.seed) for p in read_study(tmp_path / "out").plan] == [("erm", 1), ("efdmix, often", 1)]


def test_a_copy_of_pacs_that_is_not_whole_has_another_name(tmp_path: Path) -> None:
    source = draw(tmp_path / "PACS", tuple(PICTURES), CLASSES[:2], 3)
    (tmp_path / "small.py").write_text(RECIPE.format(data="pacs"))
    start = ["run", tmp_path / "small.py", "--data", source, "-o", tmp_path / "out", "--device", "cpu", "--seeds", "1"]
    part = ["--methods", "erm", "--domains", "photo"]
    for more, told in (((), "photo_train_kfold.txt"), (("--split", "own"), "not the complete PACS")):
        result = run(*start, *part, *more)
        assert result.exit_code == 2
        assert told in result.output
    result = run(*start, *part, "--split", "own", "--copy", "partial")
    assert result.exit_code == 0, result.output
    assert "pacs, own split, partial copy, leave-one-out" in result.output


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "digit_demo"}, "did you mean 'digits_demo'?"),
        ({"recipe": "mine.py"}, "there is no file mine.py; give the path of a recipe's file"),
        ({"recipe": "nowhere/mine.py"}, "there is no file nowhere/mine.py"),
        (
            {"text": "recipe = Recip()"},
            "small.py, line 1, cannot be run as a recipe (NameError: name 'Recip' is not defined)",
        ),
        (
            {"text": "import fooo"},
            "small.py, line 1, cannot be run as a recipe (ModuleNotFoundError: No module named 'fooo')",
        ),
        ({"text": "x = 1"}, "defines no recipe"),
        ({"--data": None}, "small needs the pictures of mine; give their folder or zips as --data (domain/class/picture)"),
        ({"--data": "empty"}, "holds no pictures"),
        ({"--data": "nowhere"}, "nowhere"),
        ({"--weights": "nowhere.pth"}, "weights='nowhere.pth' is no file"),
        ({"--weights": __file__}, Path(__file__).name),
        (
            {"--methods": "erm,efdmx"},
            "--methods='efdmx' is not one of 'erm', 'efdmix', 'efdmix, often'; did you mean 'efdmix'?",
        ),
        ({"--domains": "dya"}, "did you mean 'day'?"),
        ({"--seeds": "x"}, "--seeds x is no count and no list of seeds; write 5 for 0 to 4"),
        (
            {"--seeds": "0"},
            "--seeds 0 is no count and no list of seeds; write 5 for 0 to 4, 0,3 for those two, 3, for that one",
        ),
        ({"--device": "tpuu"}, "--device tpuu cannot be used here; try --device cpu"),
        ({"--precision": "fp8"}, "precision='fp8' is not one of"),
        ({"--set": "lr"}, "--set lr should be NAME=VALUE"),
        ({"--set": "rate=1"}, "--set='rate' is not one of"),
        ({"--set": "lr=fast"}, "--set lr=fast: expected a number such as 0.001"),
        ({"--set": "seed=3"}, "seed come from the recipe"),
        ({"--set": "backbone=tinny"}, "did you mean 'tiny'"),
        ({"--split": "mine"}, "--split='mine' is not one of"),
        ({"--split": "own"}, "--split: only PACS has such, and small is of mine; leave that out"),
        ({"--lists": "x", "--copy": "partial"}, "--lists and --copy: only PACS has such"),
        ({"--iterations": 3, "--set": "iterations=2"}, "--iterations and --set iterations both say what iterations is"),
        ({"--seeds": ""}, "--seeds is empty (a variable of the shell that is not set?)"),
        ({"--methods": ""}, "a list of names is empty (a variable of the shell"),
        ({"--weights": ""}, "--weights is empty (a variable of the shell"),
        ({"--out": __file__}, "is a file; choose a folder"),
        ({"--iterations": 0}, "--iterations"),
    ],
)
def test_what_is_wrong_with_a_run_is_one_sentence(
    recipe: Path, pictures: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    changes = dict(changes)
    (tmp_path / "empty").mkdir()
    recipe.write_text(changes.pop("text", recipe.read_text()))
    chosen = changes.pop("recipe", recipe)
    if changes.get("--data") == "empty":
        changes["--data"] = tmp_path / "empty"
    options = {"--data": pictures, "--out": tmp_path / "out", "--device": "cpu", **changes}
    result = run("run", chosen, *(w for k, v in options.items() if v is not None for w in (k, v)))
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--methods", "emr"), "did you mean 'erm'?"),
        (("--domains", "dya"), "did you mean 'day'?"),
        (("--domains", "cat"), "that is a class here"),
    ],
)
def test_a_wrong_row_or_column_is_told_before_pictures_are_read(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str], told: str
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", None)
    result = run("run", recipe, "--data", pictures, "-o", tmp_path / "out", "--device", "cpu", *wrong)
    assert result.exit_code == 2, result.output
    assert told in result.output


@pytest.mark.parametrize("name", ["digits_demo", "pacs_rate_mobilenetv2"])
def test_domains_of_known_sets_are_known_before_they_are_opened(name: str, tmp_path: Path) -> None:
    data = [] if name == "digits_demo" else ["--data", tmp_path / "nowhere"]
    result = run("run", name, *data, "-o", tmp_path / "out", "--device", "cpu", "--domains", "foto")
    assert result.exit_code == 2
    assert "--domains='foto' is not one of" in result.output


def test_missing_pictures_are_told_of_before_missing_weights(tmp_path: Path) -> None:
    result = run("run", "pacs_leave_one_out_resnet18", "-o", tmp_path / "out", "--weights", "nowhere.pth", "--device", "cpu")
    assert result.exit_code == 2
    assert "needs the pictures of pacs" in result.output
    where = tmp_path / "nowhere"
    result = run("run", "pacs_leave_one_out_resnet18", "-o", tmp_path / "out", "--data", where, "--device", "cpu")
    assert result.exit_code == 2
    assert str(where) in result.output
    assert "timm" not in result.output


def test_what_pacs_would_not_look_at_is_refused(tmp_path: Path) -> None:
    lists = ("--split", "own", "--lists", tmp_path)
    result = run("run", "pacs_ties_mobilenetv2", "--data", tmp_path, "-o", tmp_path / "out", *lists)
    assert result.exit_code == 2
    assert "reads no lists; leave --lists or --split out" in result.output


def test_neither_writes_into_the_folder_of_the_other(trained: Path, recipe: Path, pictures: Path, tmp_path: Path) -> None:
    before = sorted(trained.iterdir())
    for command in (studying(recipe, pictures, trained), ("demo", "-o", trained)):
        result = run(*command)
        assert result.exit_code == 2
        assert "is the folder of one training" in result.output
        assert "Digits in four styles" not in result.output
    assert sorted(trained.iterdir()) == before
    (tmp_path / "recipe.json").write_text("{}")
    result = run(*training(pictures, tmp_path))
    assert result.exit_code == 2
    assert "holds the trainings of a recipe" in result.output


def test_a_folder_where_somebody_works_is_told_of_before_pictures_are_read(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fcntl")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("pictures were read"))
    out = tmp_path / "out"
    with lock_folder(out):
        for command in (training(pictures, out), studying(recipe, pictures, out), ("demo", "-o", out)):
            result = run(*command)
            assert result.exit_code == 2
            assert f"is at work in {out}; wait until it has ended" in result.output


def test_digits_need_no_folder_and_take_none(pictures: Path, tmp_path: Path) -> None:
    result = run("run", "digits_demo", "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "leave --data out" in result.output
