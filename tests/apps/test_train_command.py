from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("typer")

from training import noise_pictures, vgg_file
from typer.testing import CliRunner

from efdm.apps.cli.group import app
from efdm.models import NETWORKS
from efdm.models.weights import read
from efdm.style import training

runner = CliRunner()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    noise_pictures(folder / "content", 3, seed=1)
    noise_pictures(folder / "style", 2, seed=2)
    vgg_file(folder)
    return folder


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)


def options(place: Path, folder: Path, **changes: Any) -> list[str]:
    """The command line of a tiny run; a change to None leaves an option out."""
    common = {
        "content": place / "content", "style": place / "style", "out": folder, "vgg": place / "random-vgg16.safetensors",
        "encoder": "vgg16", "iterations": 3, "batch": 2, "size": 16, "short-side": 20, "device": "cpu",
        "log-every": 1, "preview-every": 0,
    }  # fmt: skip
    return ["train", "style", *(w for k, v in {**common, **changes}.items() if v is not None for w in (f"--{k}", str(v)))]


def run(*arguments: str):
    return runner.invoke(app, list(arguments), env={"COLUMNS": "200"})


def records(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "per_second"} for line in lines]


def test_a_run_by_command(place: Path, tmp_path: Path) -> None:
    result = run(*options(place, tmp_path / "run", lr=0.002, seed=3))
    assert result.exit_code == 0, result.output
    assert f"trained vgg16: {tmp_path / 'run' / 'network.safetensors'}" in result.output
    assert "could not be read" not in result.output
    assert len(records(tmp_path / "run")) == 3
    told = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert (told["lr"], told["seed"], told["iterations"], told["precision"], told["speed"]) == (0.002, 3, 3, "fp32", "plain")
    assert told["schedule"] == "paper"


def test_the_recipe_of_the_network_is_used_where_nothing_is_said(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(training, "train", lambda settings, *_, **__: seen.append(settings))
    run(*options(place, tmp_path, encoder="small", iterations=None, batch=None))
    recipe = NETWORKS["small"].recipe
    assert {k: getattr(seen[0], k) for k in recipe} == dict(recipe)


def test_resuming_needs_nothing_but_the_folder(place: Path, tmp_path: Path) -> None:
    assert run(*options(place, tmp_path / "whole")).exit_code == 0

    def stop(told: training.Progress) -> None:
        if told.iteration == 2:
            raise KeyboardInterrupt

    settings = training.Settings(**json.loads((tmp_path / "whole" / "settings.json").read_text()))
    with pytest.raises(KeyboardInterrupt):
        training.train(dataclasses.replace(settings, log_every=1), tmp_path / "run", progress=stop)
    result = run("train", "style", "--resume", "-o", str(tmp_path / "run"), "--device", "cpu", "--log-every", "1")
    assert result.exit_code == 0, result.output
    assert records(tmp_path / "run") == records(tmp_path / "whole")
    one, two = (read(tmp_path / name / "network.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(one[k], two[k]) for k in two)


def test_what_moved_can_be_told_when_resuming(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*options(place, tmp_path / "run", iterations=1, speed="graph")).exit_code == 0
    seen = []
    monkeypatch.setattr(training, "train", lambda settings, *_, **__: seen.append(settings))
    resume = ("train", "style", "--resume", "-o", str(tmp_path / "run"))
    run(*resume, "--content", "moved")
    assert (seen[0].content, seen[0].style) == ("moved", str(place / "style"))
    assert seen[0].vgg == str(place / "random-vgg16.safetensors")
    assert (seen[0].device, seen[0].speed, seen[0].encoder) == ("cpu", "graph", "vgg16")  # the run's own
    run(*resume, "--speed", "plain")
    assert seen[1].speed == "plain"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--lr", "9"), "began with lr 0.0001, not 9.0; resume it with its own settings"),
        (("--iterations", "7"), "began with iterations 1, not 7"),
        (("--method", "adain", "--seed", "2"), "began with method efdm, not adain, seed 0, not 2"),
        (("--encoder", "small"), "began with encoder vgg16, not small"),
    ],
)
def test_a_resumed_run_does_not_become_another(place: Path, tmp_path: Path, changes: tuple[str, ...], message: str) -> None:
    assert run(*options(place, tmp_path / "run", iterations=1)).exit_code == 0
    result = run("train", "style", "--resume", "-o", str(tmp_path / "run"), *changes)
    assert result.exit_code == 2, result.output
    assert message in result.output


def test_the_help_tells_how_long_each_recipe_trains() -> None:
    result = runner.invoke(app, ["train", "style", "--help"], env={"COLUMNS": "400", "TERM": "dumb"})
    assert "160000 for vgg16, 160000 for vgg19, 28000 for small" in " ".join(result.output.split())


def test_an_interruption_says_how_to_go_on(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", train)
    result = run(*options(place, tmp_path / "[run]"))
    assert result.exit_code == 130
    assert f"efdm train style --resume -o {tmp_path / '[run]'}" in result.output


def test_damaged_pictures_are_counted(place: Path, tmp_path: Path) -> None:
    noise_pictures(tmp_path / "style", 2, seed=4)
    (tmp_path / "style" / "torn.png").write_bytes(b"PNG")
    result = run(*options(place, tmp_path / "run", style=tmp_path / "style", iterations=1))
    assert result.exit_code == 0, result.output
    assert "left out because they could not be read: 1;" in result.output
    assert "torn.png" in (tmp_path / "run" / "environment.json").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efmd"}, "method='efmd' is not one of"),
        ({"encoder": "vgg13"}, "encoder='vgg13' is not one of 'vgg16', 'vgg19', 'small'"),
        ({"schedule": "linear"}, "schedule='linear' is not one of"),
        ({"content": "nowhere"}, "nowhere"),
        ({"content": None}, "training needs --content and --style"),
        ({"vgg": "nowhere.pth"}, "there is no file nowhere.pth"),
        ({"vgg": __file__}, "is not a file of weights that can be read safely"),
        ({"start": "[nowhere].pth"}, "there is no file [nowhere].pth"),
        ({"size": 64}, "crops of 64 pixels do not fit"),
        ({"device": "tpuu"}, "--device tpuu cannot be used here; try --device cpu"),
        ({"out": __file__}, "is a file; choose a folder"),
        ({"lr": 1e30}, "try a lower --lr"),
        ({"log-every": 0}, "--log-every"),
        ({"batch": 0}, "--batch"),
        ({"batch": 1, "encoder": "small"}, "every content is its own style and none is learnt; raise --batch"),
    ],
)
def test_what_is_wrong_is_one_sentence(place: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    result = run(*options(place, tmp_path / "run", **changes))
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("encoder", ["small", "vgg16", "vgg19"])
def test_a_missing_vgg_is_told_with_its_option(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str
) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [tmp_path / "nowhere"])
    result = run(*options(place, tmp_path / "run", encoder=encoder, vgg=None))
    assert result.exit_code == 2
    assert result.output.endswith("or give its path with --vgg FILE\n")


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    result = run("train", "style", "--resume", "-o", str(tmp_path), "--device", "cpu")
    assert result.exit_code == 2
    assert "has no run to resume; leave --resume out to begin one" in result.output


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_train_like_one(place: Path, tmp_path: Path) -> None:
    small = {
        "encoder": "small", "reconstruct": 0, "schedule": "constant", "style-weight": 2, "sliced-weight": 1,
        "identity-weight": 1, "batch": 4,
    }  # fmt: skip
    assert run(*options(place, tmp_path / "one", **small)).exit_code == 0
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "efdm.apps.cli"]
    done = subprocess.run(
        [*start, *options(place, tmp_path / "two", **small)], capture_output=True, text=True, timeout=180, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("trained small") == 1
    one, two = records(tmp_path / "one"), records(tmp_path / "two")
    assert len(one) == len(two) == 3
    for expected, found in zip(one, two, strict=True):
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert found[name] == (value if name == "phase" else pytest.approx(value, rel=2e-4)), name
    ours, theirs = (read(tmp_path / name / "network.safetensors") for name in ("one", "two"))
    for name in ours:
        torch.testing.assert_close(theirs[name], ours[name], rtol=2e-2, atol=2e-3)
