from __future__ import annotations

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch

pytest.importorskip("typer")

from typer.testing import CliRunner

from efdm.apps import dg_cores, dg_demo, dg_open, dg_predict, dg_show
from efdm.apps.cli import app
from efdm.data import write_picture
from efdm.data.domains import load_domains
from efdm.data.pacs import CLASSES, PICTURES
from efdm.dg import METHODS, Settings, count_correct, identity, load_classifier
from efdm.lab import load_recipe, read_study, recipes
from efdm.lab.analyses import ANALYSES

runner = CliRunner()

RECIPE = '''"""A small one.

claim     nothing
"""

from efdm.lab import Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="{data}",
    methods={{"erm": {{}}, "efdmix": {{}}, "efdmix, often": {{"method": "efdmix", "options": {{"p": 0.9}}}}}},
    settings={{
        "backbone": "tiny", "stages": ("stage1",), "iterations": 2, "batch": 4, "size": 16, "augmentation": "none",
        "log_every": 1, "save_every": 1,
    }},
    seeds=(0, 1),
    orders=(("erm", "efdmix"),),
)
'''


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)


def run(*arguments: object, width: int = 200):
    return runner.invoke(app, ["dg", *map(str, arguments)], env={"COLUMNS": str(width)})


def draw(folder: Path, domains: tuple[str, ...], classes: tuple[str, ...], count: int = 6) -> Path:
    """Noise of a colour for each class."""
    generator = torch.Generator().manual_seed(0)
    for domain in domains:
        for number, label in enumerate(classes):
            (folder / domain / label).mkdir(parents=True)
            for i in range(count):
                picture = torch.rand(3, 16, 20, generator=generator) * 0.5
                picture[number % 3] += 0.4
                write_picture(folder / domain / label / f"{i}.png", picture)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw(tmp_path_factory.mktemp("mine") / "mine", ("day", "night", "rain"), ("cat", "dog"))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(RECIPE.format(data="mine"))
    return path


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `efdm dg train`, good enough to be right often."""
    out = tmp_path_factory.mktemp("trained") / "run"
    result = run(*training(pictures, out, iterations=40, lr=0.1), "--test-domains", "rain")
    assert result.exit_code == 0, result.output
    return out


def training(pictures: Path, folder: Path, /, **changes: Any) -> list[object]:
    common = {
        "data": pictures, "out": folder, "backbone": "tiny", "weights": "random", "size": 16, "batch": 8, "iterations": 3,
        "device": "cpu",
    }  # fmt: skip
    return ["train", *(w for k, v in {**common, **changes}.items() for w in (f"--{k.replace('_', '-')}", v))]


def studying(recipe: Path, pictures: Path, out: Path, *more: object) -> list[object]:
    return [
        "run",
        recipe,
        "--data",
        pictures,
        "-o",
        out,
        "--device",
        "cpu",
        "--seeds",
        "1",
        "--methods",
        "erm,efdmix",
        *more,
    ]


class Interrupted:
    """Ctrl-C after some news of a training."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left, self.seen = after, list[str]()
        usual = dg_show.Bars.step

        def step(bars: dg_show.Bars, told: Any) -> None:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            self.seen.append(told.run)
            usual(bars, told)

        monkeypatch.setattr(dg_show.Bars, "step", step)


def runs_of(out: Path) -> list[str]:
    return [json.loads(line)["run"] for line in (out / "records.jsonl").read_text().splitlines()]


# --- list and help ---------------------------------------------------------------------------------------------------


def test_the_list_has_every_recipe_and_method_with_its_source() -> None:
    result = run("list")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    for name in recipes():
        assert any(line.split()[:1] == [name] for line in lines), name
    for name, method in METHODS.items():
        assert any(line.split()[:1] == [name] and method.source in line for line in lines), name
    assert "vgg16-gap" in result.output
    assert "timm" in result.output


@pytest.mark.parametrize("command", ["demo", "train", "predict", "run", "table", "analyse", "list"])
def test_every_command_explains_itself_and_every_option(command: str) -> None:
    assert command in run("--help").output
    result = runner.invoke(app, ["dg", command, "--help"], env={"COLUMNS": "400", "TERM": "dumb"})
    assert result.exit_code == 0
    options = [line for line in result.output.splitlines() if line.strip(" │*").startswith("--")]
    assert options
    assert all(len(line.split()) > 3 for line in options)


# --- run and table ---------------------------------------------------------------------------------------------------


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


@pytest.mark.slow
def test_trainings_in_several_processes_are_the_same_trainings(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    for lanes in (1, 2):
        part = ("--methods", "erm", "--domains", "day,rain", "--seeds", "1", "--lanes", lanes)
        result = run("run", recipe, "--data", pictures, "-o", tmp_path / str(lanes), "--device", "cpu", *part)
        assert result.exit_code == 0, result.output
        assert "2/2" in result.output
    one, two = (read_study(tmp_path / str(lanes)).runs for lanes in (1, 2))
    assert one.keys() == two.keys()
    for name in one:
        assert [(r["loss"], r["val"], r["test"]) for r in one[name]] == [(r["loss"], r["val"], r["test"]) for r in two[name]]


def test_what_fails_in_another_process_is_told_in_this_one(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    data, news = load_domains(pictures, size=16), Queue[Any]()
    common = {"data": "mine", "train_domains": ("day",), "test_domains": ("rain",), "backbone": "tiny", "size": 16}
    wrong = Settings(**common, batch=500, device="cpu", precision="fp32", speed="plain")  # type: ignore[arg-type]
    dg_cores._work([wrong], data, tmp_path, 1, news)
    with pytest.raises(ValueError, match="do not fill one batch of 500"):
        dg_cores._listen([None], news, lambda _: None)


def test_what_explodes_in_another_process_does_not_stop_the_rest(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes after the processes will find it missing, try it and say so."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    data, news, told = load_domains(pictures, size=16), Queue[Any](), []
    common = {"data": "mine", "train_domains": ("day",), "test_domains": ("rain",), "backbone": "tiny", "size": 16}
    common |= {"batch": 4, "iterations": 3, "device": "cpu", "precision": "fp32", "speed": "plain", "log_every": 1}
    runs = [Settings(**common, lr=lr, seed=seed) for seed, lr in enumerate((1e30, 0.1))]  # type: ignore[arg-type]
    dg_cores._work(runs, data, tmp_path, 1, news)
    dg_cores._listen([None], news, told.append)
    assert {p.settings.seed for p in told if p.iteration == 3} == {1}
    assert [(tmp_path / identity(one) / "done").exists() for one in runs] == [False, True]


def test_a_run_with_a_training_that_explodes_shows_the_others_and_names_it(
    recipe: Path, pictures: Path, tmp_path: Path
) -> None:
    text = recipe.read_text()
    assert '"efdmix": {}' in text
    recipe.write_text(text.replace('"efdmix": {}', '"efdmix": {"lr": 1e30, "iterations": 4}'))
    result = run(*studying(recipe, pictures, tmp_path / "out"))
    assert result.exit_code == 2
    assert "0 of 1 seeds" in result.output
    assert "3 of 6 runs came to no end, all others did: the loss is" in result.output
    assert "of efdmix (on day, night, seed 0" in result.output
    assert len(runs_of(tmp_path / "out")) == 3


@pytest.mark.parametrize(
    ("side", "lanes", "threads"), [(32, 1, 1), (224, 1, 6), (224, 2, 3), (224, 9, 1)], ids=["small", "one", "two", "many"]
)
def test_threads_are_shared_and_small_pictures_take_one(
    monkeypatch: pytest.MonkeyPatch, side: int, lanes: int, threads: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    dg_cores.use_threads(side, lanes)
    assert seen == [threads]


def test_a_process_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        exitcode = -9

    monkeypatch.setattr(dg_cores, "PATIENCE", 0.01)
    with pytest.raises(OSError, match=r"code -9.*--lanes"):
        dg_cores._listen([Lost()], Queue(), lambda _: None)


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
    for more, told in (((), "photo_train_kfold.txt"), (("--split", "own"), "is not the complete PACS")):
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
        ({"recipe": "nowhere/mine.py"}, "there is no recipe nowhere/mine.py"),
        ({"text": "recipe = Recip()"}, "small.py cannot be run as a recipe (NameError: name 'Recip' is not defined)"),
        ({"text": "x = 1"}, "defines no recipe"),
        ({"--data": None}, "small needs the pictures of mine; give their folder or zips as --data (domain/class/picture)"),
        ({"--data": "empty"}, "holds no pictures"),
        ({"--data": "nowhere"}, "nowhere"),
        ({"--weights": "nowhere.pth"}, "weights='nowhere.pth' is no file"),
        ({"--weights": __file__}, "test_dg_command.py"),
        (
            {"--methods": "erm,efdmx"},
            "method='efdmx' is not one of 'erm', 'efdmix', 'efdmix, often'; did you mean 'efdmix'?",
        ),
        ({"--domains": "dya"}, "did you mean 'day'?"),
        ({"--seeds": "x"}, "--seeds x is no count and no list of seeds; write 5 for 0 to 4"),
        ({"--seeds": "0"}, "--seeds 0 is no count"),
        ({"--device": "tpuu"}, "--device tpuu cannot be used here; try --device cpu"),
        ({"--precision": "fp8"}, "precision='fp8' is not one of"),
        ({"--set": "lr"}, "--set lr should be NAME=VALUE"),
        ({"--set": "rate=1"}, "--set='rate' is not one of"),
        ({"--set": "lr=fast"}, "--set lr=fast: expected a number such as 0.001"),
        ({"--set": "seed=3"}, "seed come from the recipe"),
        ({"--set": "backbone=tinny"}, "did you mean 'tiny'"),
        ({"--split": "mine"}, "--split='mine' is not one of"),
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


def test_missing_pictures_are_told_of_before_missing_weights(tmp_path: Path) -> None:
    result = run("run", "pacs_leave_one_out_resnet18", "-o", tmp_path / "out", "--weights", "nowhere.pth", "--device", "cpu")
    assert result.exit_code == 2
    assert "needs the pictures of pacs" in result.output


def test_advice_names_options_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = draw(tmp_path / "PACS", tuple(PICTURES), CLASSES[:1], 1)
    (tmp_path / "small.py").write_text(RECIPE.format(data="pacs"))
    start = ["run", tmp_path / "small.py", "--data", source, "-o", tmp_path / "out", "--device", "cpu"]
    told = run(*start).output
    assert "--lists FOLDER" in told
    assert "--split own" in told
    assert "--copy partial" in run(*start, "--split", "own").output
    timm = pytest.importorskip("timm")

    def offline(name: str, **_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr("efdm.models.backbones._answers", lambda _: False)
    told = run("train", "--data", source, "-o", tmp_path / "out").output
    assert "give it as --weights FILE" in told


def commands_that_write(trained: Path, pictures: Path, recipe: Path, out: Path) -> list[list[object]]:
    return [
        training(pictures, out),
        studying(recipe, pictures, out),
        ["demo", "-o", out, "--iterations", 1],
        ["analyse", "ties", "--checkpoint", trained, "--data", pictures, "-o", out],
    ]


def test_a_closed_folder_is_told_of_before_pictures_are_read(
    trained: Path, pictures: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dg_open, "open_pictures", lambda *_, **__: pytest.fail("pictures were read"))
    monkeypatch.setattr(dg_open.os, "access", lambda path, _: Path(path) != tmp_path)  # root may write everywhere
    out = tmp_path / "deep" / "run"
    for command in commands_that_write(trained, pictures, recipe, out):
        result = run(*command)
        assert result.exit_code == 2
        assert f"{out} may not be written by you; choose another folder" in result.output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError, "may not be written by you"),
        (FileNotFoundError, "could not be written (No such file or directory)"),
    ],
)
def test_a_folder_that_cannot_be_made_is_one_sentence(
    trained: Path, pictures: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, message: str
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    out, usual = tmp_path / "deep" / "out", Path.mkdir
    number = {PermissionError: errno.EACCES, FileNotFoundError: errno.ENOENT}[error]

    def mkdir(path: Path, *more: Any, **options: Any) -> None:
        if path == out.parent or path == out:
            raise error(number, os.strerror(number), str(path))
        usual(path, *more, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    for command in commands_that_write(trained, pictures, recipe, out):
        result = run(*command)
        assert result.exit_code == 2, result.output
        assert f"{out} {message}; choose another folder" in result.output


def test_digits_need_no_folder_and_take_none(pictures: Path, tmp_path: Path) -> None:
    result = run("run", "digits_demo", "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "leave --data out" in result.output


def test_settings_are_read_by_their_kind() -> None:
    told = ["lr=1", "stages=layer1, layer2", 'options={"alpha": 0.3}', "weights=3", "domains_per_batch=all", "batch=8"]
    assert dg_open.changes(told) == {
        "lr": 1, "stages": ("layer1", "layer2"), "options": {"alpha": 0.3}, "weights": "3", "domains_per_batch": "all",
        "batch": 8,
    }  # fmt: skip
    with pytest.raises(ValueError, match="as JSON"):
        dg_open.changes(["options=3"])
    assert dg_open.seeds("3") == [0, 1, 2]
    assert dg_open.seeds("3,1,3") == [3, 1]


def test_what_suits_a_device_goes_behind_what_a_recipe_says() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda", 1)
    assert dg_open.suited(cpu, {"speed": "compile"}) == {"device": "cpu", "precision": "fp32", "log_every": 10}
    assert dg_open.suited(cuda, {}) == {"device": "cuda:1", "precision": "bf16", "speed": "graph"}
    assert dg_open.suited(cuda, {"precision": "fp32"}, trainings="many")["speed"] in ("graph", "compile+graph")


def test_tables_of_a_run_in_every_format(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(*studying(recipe, pictures, out)).exit_code == 0
    plain = run("table", out)
    assert plain.exit_code == 0
    assert plain.output.count("training-domain validation (step") == 1
    assert "| method | source |" in run("table", out, "--format", "markdown").output
    lines = run("table", out, "--format", "csv").output.splitlines()
    assert [line.split(",")[0] for line in lines] == ["method", "erm", "efdmix"]
    assert run("table", out, "--format", "md").output.startswith("### small: last")  # a file's ending will do
    files = {
        "a.md": "### small: last", "a.csv": "method,source,seeds,day mean,day std", "a.txt": "small: last",
        "a": "small: last", "a.tex": "% small: last",
    }  # fmt: skip
    for name, begin in files.items():
        result = run("table", out, "-o", tmp_path / name)
        assert result.exit_code == 0, result.output
        assert (tmp_path / name).read_text().startswith(begin)
    one = run("table", out, "--selection", "oracle", "--std", "sample")
    assert "small: oracle" in one.output
    assert "small: last" not in one.output


def test_a_rule_that_the_recipe_does_not_have_is_not_made_up(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    recipe.write_text(recipe.read_text().replace("methods=", "selections=('last',), methods=", 1))
    assert run(*studying(recipe, pictures, tmp_path / "out")).exit_code == 0
    result = run("table", tmp_path / "out", "--selection", "oracle")
    assert result.exit_code == 2
    assert "the recipe's `selections` decide" in " ".join(result.output.split())
    # what the sentence says to do
    recipe.write_text(recipe.read_text().replace("('last',)", "('last', 'oracle')", 1))
    assert run(*studying(recipe, pictures, tmp_path / "out")).exit_code == 0
    assert "small: oracle" in run("table", tmp_path / "out", "--selection", "oracle").output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "holds no runs (recipe.json is not there)"),
        (("--format", "pdf"), "--format='pdf' is not one of 'text', 'markdown', 'latex', 'csv'"),
        (("-o", "table.pdf"), "a table is not written as .pdf"),
    ],
)
def test_a_table_needs_a_run(tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    result = run("table", tmp_path, *more)
    assert result.exit_code == 2
    assert message in result.output


def test_at_a_terminal_a_sentence_stands_once_and_lines_fit(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from efdm.lab import tables

    assert run(*studying(recipe, pictures, tmp_path / "out")).exit_code == 0
    with (tmp_path / "screen").open("w") as file:
        made = tables(read_study(tmp_path / "out"))
        dg_show.show_tables(Console(file=file, force_terminal=True, width=90, color_system=None), made)
    text = (tmp_path / "screen").read_text()
    assert " ".join(text.split()).count("A column is the test domain") == 1
    assert "source" not in text  # every row is ours
    assert all(len(line) <= 90 for line in text.splitlines())


def test_the_bar_of_all_trainings_moves_with_each_of_them() -> None:
    from rich.console import Console

    from efdm import dg, lab

    settings = Settings("mine", ("day",), ("rain",))
    with dg_show.Bars(Console(file=StringIO())) as bars:
        bars.trainings(lab.Progress(2, 4, None))
        for run_name, seed, iteration in (("a", 0, 50), ("b", 1, 25), ("a", 0, 100)):
            told = dg.Progress(run_name, replace(settings, seed=seed), iteration, 100, {"loss": 0.5}, 7.0)
            bars.step(told)
        whole, *others = bars._bars.tasks
        assert (whole.completed, whole.total, whole.fields["count"]) == (3.25, 4, "3/4")
        assert [task.description for task in others] == ["erm, tested on rain, seed 1"]  # the other one is finished


# --- train -----------------------------------------------------------------------------------------------------------


def test_a_training_leaves_a_model_and_tells_how_good_it_is(trained: Path, pictures: Path) -> None:
    told = json.loads((trained / "settings.json").read_text())
    assert (told["method"], told["data"], told["precision"], told["speed"]) == ("efdmix", "mine", "fp32", "plain")
    assert (told["train_domains"], told["test_domains"]) == (["day", "night"], ["rain"])
    assert (trained / "done").exists()
    model, classes, size = load_classifier(trained / "model.safetensors")
    assert (classes, size) == (["cat", "dog"], 16)
    data = load_domains(pictures, size=16)
    record = json.loads((trained / "records.jsonl").read_text().splitlines()[-1])
    assert list(count_correct(model, data, data.select("rain", "test"), 16)) == record["test"]["rain"]


def test_without_a_test_domain_all_is_learnt_and_that_is_said(pictures: Path, tmp_path: Path) -> None:
    result = run(*training(pictures, tmp_path / "out", method="erm"))
    assert result.exit_code == 0, result.output
    assert "learning from day, night, rain, no domain kept for a test" in result.output
    assert "nothing is known of new ones" in result.output
    assert f"efdm dg predict {tmp_path / 'out' / 'model.safetensors'}" in result.output


def test_settings_follow_the_pictures(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def stop(settings: Settings, *_: object, **__: object) -> None:
        seen.append(settings)
        raise ValueError("enough")

    monkeypatch.setattr("efdm.apps.dg_train.train", stop)
    start = ["train", "--data", pictures, "-o", tmp_path / "out", "--backbone", "tiny", "--weights", "random", "--size", 16]
    run(*start, "--train-domains", "day,night", "--method", "efdmix-labels")
    run(*start, "--test-domains", "day", "--set", "augmentation=none", "--stages", "stage1,stage2", "--device", "cpu")
    run("train", "--data", "digits", "-o", tmp_path / "out", "--set", "iterations=7")
    first, second, third = seen
    assert (first.train_domains, first.test_domains) == (("day", "night"), ("rain",))
    assert (first.batches, first.domains_per_batch, first.batch, first.iterations) == ("domains", 2, 20, 300)
    assert (second.train_domains, second.test_domains) == (("night", "rain"), ("day",))
    assert (second.augmentation, second.stages, second.batches) == ("none", ("stage1", "stage2"), "uniform")
    assert (third.data, third.backbone, third.size, third.iterations) == ("digits", "tiny", 32, 7)
    assert (first.stages, third.stages) == (Settings.stages, load_recipe("digits_demo").settings["stages"])


def test_stages_follow_the_backbone(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    seen: list[Settings] = []
    monkeypatch.setattr("efdm.apps.dg_train.train", lambda settings, *_, **__: seen.append(settings))
    start = ["train", "--data", pictures, "-o", tmp_path / "out", "--weights", "random", "--size", 32, "--backbone"]
    result = run(*start, "mobilenetv2_050")
    assert "(stages blocks.1, blocks.2, blocks.4)" in result.output
    run(*start, "mobilenetv2_050", "--stages", "blocks.0")
    assert [s.stages for s in seen] == [("blocks.1", "blocks.2", "blocks.4"), ("blocks.0",)]


def test_an_interrupted_training_is_resumed_as_it_would_have_been(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*training(pictures, tmp_path / "run", iterations=6), "--test-domains", "rain", "--set", "log_every=1"]
    whole = [str(tmp_path / "whole") if word == tmp_path / "run" else word for word in command]
    assert run(*whole).exit_code == 0
    with monkeypatch.context() as patched:
        Interrupted(patched, after=3)
        result = run(*command)
    assert result.exit_code == 130
    hint = f"efdm dg train --resume --data {pictures} -o {tmp_path / 'run'}"
    assert hint in result.output
    assert "resume it, or choose another folder" in run(*command).output
    other = draw(tmp_path / "other", ("day", "night", "rain"), ("cat", "cow", "dog"), 2)
    result = run("train", "--resume", "--data", other, "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert "not the pictures that the run" in result.output
    result = run("train", "--resume", "--data", pictures, "-o", tmp_path / "run", "--lr", 9)
    assert "began with lr 0.001, not 9.0" in result.output
    result = run(*hint.split()[2:])
    assert result.exit_code == 0, result.output
    one, two = (load_classifier(tmp_path / name / "model.safetensors").model.state_dict() for name in ("run", "whole"))
    assert all(torch.equal(one[key], two[key]) for key in two)


def test_damaged_pictures_are_left_out_of_training_and_told(pictures: Path, tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("day", "night"), ("cat", "dog"), 5)
    (source / "day" / "cat" / "[torn].png").write_bytes(b"PNG")
    result = run(*training(source, tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "1 of 21 pictures (day/cat/[torn].png is not a picture" in result.output
    assert "[torn].png" in (tmp_path / "out" / "pictures.json").read_text()
    for number in range(4):
        (source / "day" / "cat" / f"torn{number}.png").write_bytes(b"PNG")
    told = run(*training(source, tmp_path / "more")).output
    assert [f"torn{number}.png" in told for number in range(4)] == [True, True, False, False]
    assert "and 2 more" in told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efdmx"}, "did you mean 'efdmix'?"),
        ({"backbone": "resnet1"}, "is no model of timm"),
        ({"weights": "nowhere.pth"}, "weights='nowhere.pth' is no file"),
        ({"test_domains": "snow"}, "--test-domains='snow' is not one of 'day', 'night', 'rain'"),
        ({"test_domains": "day,night,rain"}, "train_domains is empty"),
        ({"batch": 999}, "do not fill one batch of 999"),
        ({"data": "nowhere"}, "nowhere"),
        ({"stages": "layer9"}, "layer9"),
        ({"lr": 1e30}, "try a lower learning rate"),
        ({"set": 'options={"p": 0.5, "q": 1}'}, "has no option 'q'"),
        ({"out": __file__}, "is a file; choose a folder"),
        ({"batch": 1}, "give a batch of at least 2, or choose erm"),
        ({"train_domains": "day", "method": "efdmix-labels"}, "give two domains or more, or choose efdmix"),
        ({"test_domains": "cat"}, "--test-domains cat: that is a class here, the domains are day, night, rain; are your"),
        ({"weights": __file__}, "can be read safely; expected .safetensors"),
    ],
)
def test_what_is_wrong_with_a_training_is_one_sentence(
    pictures: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    if changes.get("backbone"):
        pytest.importorskip("timm")
    result = run(*training(pictures, tmp_path / "out", **changes))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output


def test_classes_that_differ_between_domains_are_named(pictures: Path, recipe: Path, tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("photo", "sketch"), ("circle", "square"), 4)
    (source / "sketch" / "circle").rename(source / "sketch" / "Circles")
    result = run(*training(source, tmp_path / "out", test_domains="sketch", method="erm", batch=4))
    assert result.exit_code == 0, result.output
    first, _, warning, *_ = result.output.splitlines()
    assert "3 classes (Circles, circle, square)" in first
    assert "sketch has no circle; only sketch has Circles" in warning
    result = run(*studying(recipe, source, tmp_path / "study"))
    assert "photo has no Circles; sketch has no circle" in result.output
    assert "classes differ" not in run(*training(pictures, tmp_path / "even")).output


def test_classes_of_several_domains_are_told_by_the_odd_one() -> None:
    pytest.importorskip("sklearn")
    some = dg_open.open_pictures(dg_open.DIGITS, [], 16)
    assert dg_open.uneven_classes(some, some.domain_names) == []
    first, second, *_ = some.domain_names
    without = some.subset(((some.domains != 0) | (some.labels > 1)).nonzero()[:, 0])
    assert dg_open.uneven_classes(without, some.domain_names) == [f"{first} has no 0, 1"]
    alone = some.subset(((some.domains == 1) | (some.labels < 9)).nonzero()[:, 0])
    assert dg_open.uneven_classes(alone, some.domain_names) == [f"only {second} has 9"]
    two = some.subset(((some.domains < 2) | (some.labels < 9)).nonzero()[:, 0])
    assert dg_open.uneven_classes(two, some.domain_names, [first, second]) == [f"only {first}, {second} have 9"]


def test_a_model_that_does_not_take_the_size_is_told_of_at_once(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(dg_open, "open_pictures", lambda *_, **__: pytest.fail("pictures were read"))
    vit = "vit_tiny_patch16_224"
    for option, command in {
        "--size": training(pictures, tmp_path / "out", backbone=vit, size=64),
        "--set size=N": studying(recipe, pictures, tmp_path / "out", "--set", f"backbone={vit}"),
    }.items():
        result = run(*command)
        assert result.exit_code == 2, result.output
        assert f"{vit} cannot take pictures of" in result.output
        assert f"change it with {option}" in result.output
        assert not (tmp_path / "out").exists()


def test_our_own_backbones_begin_with_random_weights(pictures: Path, tmp_path: Path) -> None:
    command = training(pictures, tmp_path / "out")
    at = command.index("--weights")
    result = run(*command[:at], *command[at + 2 :])
    assert result.exit_code == 0, result.output
    assert "weights random" in result.output


def test_a_finished_run_is_seen_before_pictures_are_read(
    trained: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dg_open, "open_pictures", lambda *_, **__: pytest.fail("pictures were read"))
    for more in ((), ("--resume",)):
        result = run(*training(pictures, trained), *more)
        assert result.exit_code == 2
        assert "has a finished run" in result.output


def test_there_must_be_something_to_resume(pictures: Path, tmp_path: Path) -> None:
    result = run("train", "--resume", "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "leave --resume out" in result.output


# --- predict ---------------------------------------------------------------------------------------------------------


def test_predictions_agree_with_the_evaluation(trained: Path, pictures: Path, tmp_path: Path) -> None:
    result = run(
        "predict", trained / "model.safetensors", pictures / "rain", "--labels", "folders", "-o", tmp_path / "p.csv"
    )
    assert result.exit_code == 0, result.output
    correct, count = json.loads((trained / "records.jsonl").read_text().splitlines()[-1])["test"]["rain"]
    assert f"{100 * correct / count:.1f} %  all ({correct} of {count})" in result.output
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert [row["picture"] for row in rows][:2] == ["cat/0.png", "cat/1.png"]
    assert {row["domain"] for row in rows} == {"rain"}
    assert sum(row["class"] == row["label"] for row in rows) == correct
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


def test_accuracy_of_each_domain_and_of_single_files(trained: Path, pictures: Path) -> None:
    result = run("predict", trained, pictures, "--labels", "folders")
    assert all(f"%  {name} (" in result.output for name in ("day", "night", "rain", "all"))
    files = [pictures / "day" / "cat" / "0.png", pictures / "rain" / "dog" / "1.png"]
    result = run("predict", trained, *files, "--labels", "folders", width=400)
    assert result.exit_code == 0, result.output
    assert str(files[0]) in result.output
    assert "of 2)" in result.output
    assert "accuracy" not in run("predict", trained, files[0]).output


def test_damaged_pictures_are_skipped_and_the_exit_code_tells(
    trained: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "[torn].png").write_bytes(b"PNG")
    result = run("predict", trained, tmp_path)
    assert result.exit_code == 2
    assert "[torn].png is not a picture" in result.output
    good = pictures / "day" / "cat" / "0.png"
    (tmp_path / "cat" / "good.png").write_bytes(good.read_bytes())
    monkeypatch.setattr(dg_predict, "AT_ONCE", 1)
    result = run("predict", trained, tmp_path, "-o", tmp_path / "p.csv")
    assert result.exit_code == 1
    assert "1 of 2 pictures could not be read" in result.output
    assert [row["picture"] for row in csv.DictReader((tmp_path / "p.csv").open())] == ["cat/good.png"]


def test_a_folder_of_several_trainings_names_those_inside(trained: Path, pictures: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "many" / "runs" / name).mkdir(parents=True)
        for file in ("model.safetensors", "settings.json"):
            (tmp_path / "many" / "runs" / name / file).write_bytes((trained / file).read_bytes())
    for command in (
        ("predict", tmp_path / "many", pictures),
        ("analyse", "ties", "--checkpoint", tmp_path / "many", "-o", "x"),
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "has no model itself" in result.output
        assert f"{tmp_path / 'many' / 'runs' / 'a'} (efdmix, tested on rain, seed 0)" in result.output


def test_what_is_wrong_with_a_prediction_is_one_sentence(trained: Path, pictures: Path, tmp_path: Path) -> None:
    other = draw(tmp_path / "other", ("day",), ("cow",), 1)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    for arguments, message in (
        ((trained, other, "--labels", "folders"), "cow is no class of this model, which knows cat, dog"),
        ((trained, tmp_path / "nowhere"), "nowhere"),
        ((tmp_path / "model.safetensors", pictures), "cannot be read as safetensors"),
        ((tmp_path / "nowhere", pictures), "there is no file"),
        ((trained, pictures, "--labels", "yes"), "--labels='yes' is not one of 'none', 'folders'"),
        ((trained, pictures, "-o", pictures / "day" / "cat" / "0.png"), "choose a file for the predictions"),
    ):
        result = run("predict", *arguments)
        assert result.exit_code == 2, result.output
        assert message in result.output


# --- analyse and demo ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("analysis", "more"),
    [("histogram", ("--channel", "3", "--stage", "stage2")), ("tsne", ("--perplexity", 3)), ("ties", ())],
)
def test_an_analysis_by_command(trained: Path, pictures: Path, tmp_path: Path, analysis: str, more: tuple[object]) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    out = tmp_path / "out"
    result = run("analyse", analysis, "--checkpoint", trained, "--data", pictures, "-o", out, "--per-domain", 8, *more)
    assert result.exit_code == 0, result.output
    for file in ANALYSES[analysis].files:
        assert (out / file).stat().st_size > 0
        assert str(out / file) in result.output
    told = json.loads((out / f"{analysis}.json").read_text())
    assert told["model"] == "tiny, efdmix"
    assert told["pictures"] == {"day": 8, "night": 8, "rain": 8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("histogramm",), "did you mean 'histogram'?"),
        (("ties", "--channel", "3"), "ties takes no --channel"),
        (("tsne", "--stage", "stage1", "--stage", "stage2"), "tsne looks at one stage"),
        (("histogram", "--channel", "99999"), "channel 99999 is not there"),
        (("histogram", "--domains", "snow"), "there is no domain 'snow'"),
    ],
)
def test_what_is_wrong_with_an_analysis_is_one_sentence(
    trained: Path, pictures: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run("analyse", *arguments, "--checkpoint", trained, "--data", pictures, "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_an_analysis_asks_for_pictures_like_those_of_the_training(trained: Path, tmp_path: Path) -> None:
    result = run("analyse", "ties", "--checkpoint", trained, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "was trained on mine; give such pictures as --data" in result.output


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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_stops_all_processes_and_each_saves_its_work(tmp_path: Path) -> None:
    """To all of them, as a terminal does, and twice, as people do."""
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "efdm.apps.cli", "dg", "demo", "-o", tmp_path / "demo", "--iterations", "100000"]
    started = subprocess.Popen(
        [*map(str, command), "--lanes", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    until = time.monotonic() + 120
    while len([p for p in (tmp_path / "demo" / "runs").glob("*/log.jsonl") if p.stat().st_size]) < 2:
        assert started.poll() is None
        assert time.monotonic() < until
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGINT)
    told, _ = started.communicate(timeout=60)
    assert started.returncode == 130, told
    assert "interrupted; the same command goes on" in told
    assert "Traceback" not in told
    assert len(list((tmp_path / "demo" / "runs").glob("*/checkpoint.pt"))) == 2
