import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dg_commands import RECIPE, Interrupted, draw, run, runs_of, studying, training
from runs import lines

from efdm.data.pacs import CLASSES, PICTURES
from efdm.lab import read_study


def test_a_recipe_is_run_once_and_its_table_printed(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = studying(recipe, pictures, tmp_path / "out", "--note", "Pictures [are] noise.")
    result = run(*command)
    printed = result.output.splitlines()
    assert {"reading pictures: 36/36", "runs: 0/6", "runs: 6/6"} <= set(printed)
    assert any(re.match(r"erm, tested on day, seed 0.*: 1/2.*loss [\d.]+$", line) for line in printed), printed
    assert "method  source  seeds" in result.output
    assert "average" in result.output
    assert "Pictures [are] noise." in result.output
    assert f"efdm dg table {tmp_path / 'out'}" in result.output
    settings = next(iter(read_study(tmp_path / "out").plan)).settings
    assert (settings["device"], settings["precision"], settings["speed"]) == ("cpu", "fp32", "plain")
    before = runs_of(tmp_path / "out")
    assert len(before) == len(set(before)) == 6
    Interrupted(monkeypatch, after=0)  # fails at the first step
    run(*command)
    assert runs_of(tmp_path / "out") == before


def test_models_of_finished_runs_can_be_deleted(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = studying(recipe, pictures, tmp_path / "out", "--keep", "records")
    with monkeypatch.context() as patched:
        Interrupted(patched, after=4)  # in the first iteration of the third run
        run(*command, code=130)
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1  # the interrupted run can be resumed
    run(*command)
    assert not list((tmp_path / "out" / "runs").iterdir())
    assert len(runs_of(tmp_path / "out")) == 6
    assert "average" in run("table", tmp_path / "out").output


def test_an_interrupted_run_resumes_with_the_same_command(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "my runs"
    command = studying(recipe, pictures, out)
    with monkeypatch.context() as patched:
        Interrupted(patched, after=4)  # in the first iteration of the third run
        result = run(*command, code=130)
    assert f"repeat the command to resume; efdm dg table '{out}'" in result.output
    assert "Incomplete" in run("table", out).output
    resumed = Interrupted(monkeypatch, after=100)
    run(*command)
    assert sorted(Counter(resumed.seen).values()) == [1, 2, 2, 2]  # the interrupted run had one of two iterations left


def test_diverged_runs_are_named_after_the_others_have_finished(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    text = recipe.read_text()
    assert '"efdmix": {}' in text
    recipe.write_text(text.replace('"efdmix": {}', '"efdmix": {"lr": 1e30, "iterations": 4}'))
    result = run(*studying(recipe, pictures, tmp_path / "out"), code=2)
    assert "0 of 1 seed " in result.output
    assert "3 of 6 runs" in result.output
    assert "efdmix" in result.output.splitlines()[-1]
    assert len(runs_of(tmp_path / "out")) == 3


def test_streamed_pictures_give_the_same_runs(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    for storage in ("memory", "stream"):
        run(*studying(recipe, pictures, tmp_path / storage, "--domains", "day", "--storage", storage))
    memory, stream = (lines(tmp_path / storage / "records.jsonl") for storage in ("memory", "stream"))
    assert [(r["run"], r["loss"], r["test"]) for r in memory] == [(r["run"], r["loss"], r["test"]) for r in stream]


def test_a_partial_copy_of_pacs_has_another_name(tmp_path: Path) -> None:
    source = draw(tmp_path / "PACS", tuple(PICTURES), CLASSES[:2], 3)
    (tmp_path / "small.py").write_text(RECIPE.format(data="pacs"))
    start = ["run", tmp_path / "small.py", "--data", source, "-o", tmp_path / "out", "--device", "cpu", "--seeds", "1"]
    part = ["--methods", "erm", "--domains", "photo", "--storage", "stream"]
    assert "(--copy)" in run(*start, *part, code=2).output
    assert "(--lists, --split)" in run(*start, *part, "--copy", "partial", code=2).output
    assert "pacs, own split, partial copy, leave-one-out" in run(*start, *part, "--split", "own", "--copy", "partial").output


@pytest.mark.usefixtures("no_reading")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "digit_demo"}, "did you mean 'digits_demo'?"),
        ({"recipe": "digits_demo"}, "takes no data (--data)"),
        ({"recipe": "digits_demo", "--data": None, "--domains": "foto"}, "'foto'"),
        ({"recipe": "pacs_rate_mobilenetv2", "--domains": "foto"}, "'foto'"),
        ({"recipe": "pacs_leave_one_out_resnet18", "--data": None, "--weights": "nowhere.pth"}, "the pictures of pacs"),
        ({"recipe": "pacs_leave_one_out_resnet18", "--data": "nowhere"}, "nowhere does not exist"),  # before missing weights
        ({"--data": None}, "small needs the pictures of mine"),
        ({"--data": "empty"}, "holds no pictures"),
        ({"--data": "nowhere"}, "nowhere"),
        ({"--weights": "nowhere.pth"}, "nowhere.pth"),
        ({"--weights": __file__}, Path(__file__).name),
        ({"--methods": "erm,efdmx"}, "did you mean 'efdmix'?"),
        ({"--methods": ""}, "(--methods)"),
        ({"--domains": "dya"}, "did you mean 'day'?"),
        ({"--domains": "cat"}, "is a class"),
        ({"--seeds": "0"}, "(--seeds)"),
        ({"--device": "tpuu"}, "tpuu"),
        ({"--set": "rate=1"}, "'rate'"),
        ({"--set": "backbone=tinny"}, "did you mean 'tiny'"),
        ({"--split": "own"}, "only PACS has split;"),
        ({"--lists": "x", "--copy": "partial"}, "(--lists, --copy)"),
        ({"--iterations": 3, "--set": "iterations=2"}, "(--iterations)"),
        ({"--out": __file__}, "is a file"),
        ({"--iterations": 0}, "--iterations"),
    ],
)
def test_wrong_arguments_are_named_before_pictures_are_read(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    given = {"recipe": recipe, "--data": pictures, "--out": "out", "--device": "cpu", **changes}
    options = [w for k, v in given.items() if k != "recipe" and v is not None for w in (k, v)]
    result = run("run", given["recipe"], *options, code=2)
    assert message in " ".join(result.output.split())
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--precision", "fp8", "'fp8'"),
        ("--shard", "3/2", "(--shard)"),
        ("--set", "lr=fast", "'fast'"),
        ("--set", "seed=3", "seed"),
        ("--set", "optimizer=sgdd", "'sgd'"),
    ],
)
def test_wrong_settings_are_named_before_any_run(
    recipe: Path, pictures: Path, tmp_path: Path, option: str, value: str, message: str
) -> None:
    result = run("run", recipe, "--data", pictures, "-o", tmp_path / "out", "--device", "cpu", option, value, code=2)
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_a_run_and_a_sweep_do_not_share_a_folder(trained: Path, recipe: Path, pictures: Path, tmp_path: Path) -> None:
    before = sorted(trained.iterdir())
    for command in (studying(recipe, pictures, trained), ("demo", "-o", trained)):
        result = run(*command, code=2)
        assert str(trained) in result.output
        assert "Digits in four styles" not in result.output
    assert sorted(trained.iterdir()) == before
    (tmp_path / "recipe.json").write_text("{}")
    assert "holds the runs of a recipe" in run(*training(pictures, tmp_path), code=2).output
