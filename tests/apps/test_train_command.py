import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import invoke
from runs import Watch, lines, without_clock
from style_runs import settings
from training import noise_pictures

from efdm.models import NETWORKS
from efdm.models.weights import read
from efdm.style import training


def options(style_data: Path, folder: Path, **changes: Any) -> list[str]:
    """Return the command line of a tiny run; None removes an option."""
    common = {
        "content": style_data / "content", "style": style_data / "style", "out": folder,
        "vgg": style_data / "random-vgg16.safetensors", "encoder": "vgg16", "iterations": 3, "batch": 2,
        "size": 16, "short-side": 20, "device": "cpu", "log-every": 1, "preview-every": 0,
    }  # fmt: skip
    return ["train", "style", *(w for k, v in {**common, **changes}.items() if v is not None for w in (f"--{k}", str(v)))]


def records(out: Path) -> list[dict[str, Any]]:
    return without_clock(lines(out / "log.jsonl"))


def test_a_run(style_data: Path, tmp_path: Path) -> None:
    noise_pictures(tmp_path / "style", 2, seed=4)
    (tmp_path / "style" / "torn.png").write_bytes(b"PNG")
    result = invoke(*options(style_data, tmp_path / "run", style=tmp_path / "style", lr=0.002, seed=3))
    assert f"trained vgg16: {tmp_path / 'run' / 'network.safetensors'}" in result.output
    assert "style: 3/3, iterations/s" in result.output
    assert "1 unreadable picture" in result.output
    environment = (tmp_path / "run" / "environment.json").read_text()
    assert "style: style/torn.png" in environment
    assert str(tmp_path) not in environment
    assert len(records(tmp_path / "run")) == 3
    stored = json.loads((tmp_path / "run" / "settings.json").read_text())
    expected = {"lr": 0.002, "seed": 3, "iterations": 3, "precision": "fp32", "speed": "plain", "schedule": "inverse-time"}
    assert {name: stored[name] for name in expected} == expected


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[training.Settings]:
    """Collect the settings that are passed to the training function, which is replaced."""
    found: list[training.Settings] = []

    def train(settings: training.Settings, *_: object, **__: object) -> None:
        found.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", train)
    return found


def test_settings_default_to_the_recipe_of_the_network(
    style_data: Path, tmp_path: Path, seen: list[training.Settings]
) -> None:
    result = invoke(*options(style_data, tmp_path / "[run]", encoder="small", iterations=None, batch=None), code=130)
    assert "before the first step" in result.output
    recipe = NETWORKS["small"].recipe
    assert {k: getattr(seen[0], k) for k in recipe} == dict(recipe)


@pytest.fixture(scope="module")
def interrupted(style_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was interrupted after two of three iterations."""
    folder = tmp_path_factory.mktemp("interrupted") / "[run]"
    changes = {"lr": 1e-4, "speed": "graph", "log_every": 1, "preview_every": 0, **NETWORKS["vgg16"].recipe}
    with pytest.raises(KeyboardInterrupt):
        training.train(settings(style_data, **changes), folder, progress=Watch(2))
    return folder


def test_resuming_needs_only_the_folder(style_data: Path, tmp_path: Path, interrupted: Path) -> None:
    invoke(*options(style_data, tmp_path / "whole"))
    shutil.copytree(interrupted, tmp_path / "run")
    invoke("train", "style", "--resume", "-o", str(tmp_path / "run"), "--device", "cpu")
    assert records(tmp_path / "run") == records(tmp_path / "whole")
    one, two = (read(tmp_path / name / "network.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(one[k], two[k]) for k in two)


def test_files_and_speed_may_change_when_resuming(
    style_data: Path, interrupted: Path, seen: list[training.Settings]
) -> None:
    resume = ("train", "style", "--resume", "-o", str(interrupted))
    result = invoke(*resume, "--content", "moved", code=130)
    assert "repeat the command with --resume" in result.output
    invoke(*resume, "--speed", "plain", code=130)
    first, second = seen
    assert (first.content, first.style) == ("moved", str(style_data / "style"))
    assert first.vgg == str(style_data / "random-vgg16.safetensors")
    assert (first.device, first.speed, first.encoder) == ("cpu", "graph", "vgg16")
    assert second.speed == "plain"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efmd"}, "'efmd'"),
        ({"encoder": "vgg13"}, "'vgg13'"),
        ({"schedule": "linear"}, "'linear'"),
        ({"content": "nowhere"}, "nowhere"),
        ({"content": None}, "(--content, --style)"),
        ({"vgg": "nowhere.pth"}, "nowhere.pth"),
        ({"vgg": __file__}, Path(__file__).name),
        ({"start": "[nowhere].pth"}, "[nowhere].pth"),
        ({"size": 64}, "64"),
        ({"device": "tpuu", "content": "nowhere"}, "tpuu"),  # before pictures are read
        ({"out": __file__}, "is a file"),
        ({"lr": 1e30}, "--lr"),
        ({"log-every": 0}, "--log-every"),
        ({"batch": 0}, "--batch"),
        ({"batch": 1, "encoder": "small"}, "--batch"),
    ],
)
def test_invalid_arguments(style_data: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    result = invoke(*options(style_data, tmp_path / "run", **changes), code=2)
    assert message in result.output
    assert "lr" in changes or not (tmp_path / "run").exists()


@pytest.mark.parametrize("encoder", ["small", "vgg16"])
def test_a_missing_vgg_is_reported_with_its_option(
    style_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str
) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [tmp_path / "nowhere"])
    result = invoke(*options(style_data, tmp_path / "run", encoder=encoder, vgg=None), code=2)
    assert result.output.endswith("or pass its path as vgg (--vgg)\n")


def test_resuming_a_finished_run_changes_nothing(style_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    invoke(*options(style_data, out, iterations=1))
    before = (out / "network.safetensors").stat().st_mtime_ns
    assert "finished" in invoke("train", "style", "--resume", "-o", str(out)).output
    assert (out / "network.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_train_like_one(style_data: Path, tmp_path: Path) -> None:
    small = {
        "encoder": "small", "reconstruct": 0, "schedule": "constant", "style-weight": 2, "sliced-weight": 1,
        "identity-weight": 1, "batch": 4, "iterations": 2, "precision": "fp64",
    }  # fmt: skip
    without_tensorboard = "import sys; sys.modules['torch.utils.tensorboard'] = None; from efdm.apps.cli import main; main()"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    workers = []
    for rank in "01":  # as torchrun starts them
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, "-c", without_tensorboard, *options(style_data, tmp_path / "two", **small)]
        environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
        workers.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        )
    invoke(*options(style_data, tmp_path / "one", **small))
    output = [worker.communicate(timeout=180)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], output
    assert ["trained small" in text for text in output] == [True, False]
    assert len(records(tmp_path / "two")) == 2
    ours, theirs = (read(tmp_path / name / "network.safetensors") for name in ("one", "two"))
    for name in ours:
        torch.testing.assert_close(theirs[name], ours[name], rtol=1e-3, atol=1e-5)
