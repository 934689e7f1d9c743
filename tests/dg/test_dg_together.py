import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dg_lanes
import pytest
import torch
from dg_runs import settings
from runs import Watch, weights
from torch import Tensor

import efdm
from efdm.data.domains import DomainSet
from efdm.dg.training import Trained, train, train_together
from efdm.errors import RunFolderError
from efdm.recognition.settings import identity, resolved, run_label
from efdm.training.step import Step

pytestmark = pytest.mark.usefixtures("quickly")


def test_each_of_several_runs_equals_the_run_alone(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(method=m, seed=s, evaluate_every=0) for m in ("erm", "efdmix") for s in (0, 1)]
    made: list[Trained] = []
    train_together(runs, data, tmp_path, lanes=3, finished=made.append)
    assert [t.settings for t in made] == [resolved(wanted) for wanted in runs]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(map(identity, runs))
    for found, wanted in zip(made, runs, strict=True):
        assert torch.equal(weights(found), weights(train(wanted, data)))
        assert found.records[-1]["lanes"] == 1  # on a CPU one after the other


def test_an_interrupted_sweep_resumes_and_repeats_nothing(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(seed=s, evaluate_every=0) for s in range(3)]
    expected = [weights(train(wanted, data)) for wanted in runs]
    with pytest.raises(KeyboardInterrupt):
        train_together(runs, data, tmp_path, progress=Watch(3, label=run_label(runs[1])))
    after, made = Watch(), []
    train_together(runs, data, tmp_path, progress=after, finished=made.append)
    assert [t.settings.seed for t in made] == [0, 1, 2]
    assert [len([1 for run, _ in after.losses if run == run_label(wanted)]) for wanted in runs] == [0, 3, 6]
    assert all(torch.equal(weights(t), w) for t, w in zip(made, expected, strict=True))
    assert [len(t.records) for t in made] == [1, 1, 1]
    renamed = dataclasses.replace(data, names=[f"other {name}" for name in data.names])
    with pytest.raises(RunFolderError, match="other data"):
        train_together(runs, renamed, tmp_path)


def test_a_diverged_run_does_not_stop_the_others_and_is_repeated(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(seed=s, lr=1e30 if s == 1 else 0.05, evaluate_every=0) for s in range(3)]
    for _ in range(2):
        made: list[Trained] = []
        watch = Watch()
        with pytest.raises(FloatingPointError, match="1 of 3 runs diverged; the others finished: ") as error:
            train_together(runs, data, tmp_path, progress=watch, finished=made.append)
        assert run_label(runs[1]) in str(error.value)
        assert [t.settings.seed for t in made] == [0, 2]
    assert not (tmp_path / identity(runs[1]) / "done").exists()
    with pytest.raises(FloatingPointError, match="1 of 1 runs diverged: "):
        train_together(runs[1:2], data, tmp_path)


def test_ctrl_c_in_a_diverged_run_stops_the_sweep(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(seed=s, lr=1e30, log_every=100, save_every=0, evaluate_every=0) for s in range(2)]
    step, count = Step.__call__, iter(range(100))

    def interrupted(self: Any, *given: Any, **named: Any) -> dict[str, Tensor]:
        losses = step(self, *given, **named)
        if next(count) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return losses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_together(runs, data, tmp_path)
    assert next(count) == 4


def test_repeated_runs_and_several_devices_are_refused(data: DomainSet) -> None:
    with pytest.raises(ValueError, match="1 repeated"):
        train_together([settings(), settings(log_every=9), settings(seed=1)], data)
    with pytest.raises(ValueError, match="same device, got cpu, cuda"):
        train_together([settings(), settings(device="cuda", seed=1)], data)
    train_together([], data)


@pytest.fixture(scope="module")
def differences() -> list[dict[str, Any]]:
    """Return the differences between runs alone, in lanes and from streamed pictures, with deterministic algorithms."""
    folder = Path(dg_lanes.__file__).parent
    paths = [str(folder), str(Path(efdm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, dg_lanes.__file__, "cuda"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print(f"{done.stdout}\n{done.stderr[-8000:]}")  # pytest shows it if a test fails
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.gpu
@pytest.mark.parametrize("mode", dg_lanes.MODES)
def test_lanes_train_each_run_as_alone(differences: list[dict[str, Any]], mode: str) -> None:
    """If "alone again" fails as well, an operation is not deterministic, and the printed warnings name it."""
    rows = [row for row in differences if row["mode"] == mode]
    assert [row["lanes"] for row in rows] == [dg_lanes.MODES[mode][0]] * 4
    assert [row for row in rows if row["differ"]] == []
    assert all(one == two for one, two in (row["losses"] for row in rows))


@pytest.mark.gpu
@pytest.mark.parametrize("lanes", [1, 2])
def test_interrupted_runs_on_a_gpu_resume(data: DomainSet, tmp_path: Path, lanes: int) -> None:
    """Logged every eighth step, so that two lanes are busy when one is interrupted."""
    quiet = {"log_every": 8, "save_every": 0, "evaluate_every": 0, "iterations": 32, "lr": 0.005}
    runs = [settings(method=m, device="cuda", speed="graph", batch=96, **quiet) for m in ("efdmix", "mixup")]
    whole, before, after = Watch(), Watch(16), Watch()
    train_together(runs, data, lanes=lanes, progress=whole)
    with pytest.raises(KeyboardInterrupt):
        train_together(runs, data, tmp_path, lanes=lanes, progress=before)
    train_together(runs, data, tmp_path, lanes=lanes, progress=after)
    found = {**before.losses, **after.losses}
    assert set(found) == set(whole.losses)
    assert min(i for run, i in after.losses if run == run_label(runs[0])) > 8  # not from the start
    for place, loss in whole.losses.items():
        assert found[place] == pytest.approx(loss, rel=0.02), place


@pytest.mark.gpu
def test_the_memory_of_finished_runs_is_freed(data: DomainSet) -> None:
    """The memory of a graph counts as reserved, not as allocated."""
    used = []

    def finished(_: Trained) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        used.append(torch.cuda.memory_reserved())

    runs = [settings(seed=s, device="cuda", speed="graph", batch=96, evaluate_every=0) for s in range(6)]
    train_together(runs, data, lanes=1, finished=finished)
    assert used[-1] <= used[1] + 2**23  # the graph of one run takes more than that
