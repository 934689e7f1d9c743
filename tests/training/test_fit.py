"""The training loop with the smallest possible task: a linear model in two phases."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Watch, lines, weights
from torch import Tensor, nn

from efdm.errors import DamagedFileError, DivergedError, RunFolderError, SettingError
from efdm.training import fit as loop
from efdm.training.fit import Phase, Status, Task, fit
from efdm.training.lanes import Work
from efdm.training.settings import TrainSettings
from efdm.training.step import Step


class LinearTask(Task[nn.Module]):
    """Regress random targets; evaluate after every third iteration."""

    def __init__(self, settings: TrainSettings, data: str = "a") -> None:
        self.settings, self.data = settings, data
        torch.manual_seed(settings.seed)
        self.model = nn.Linear(3, 1)
        self.evaluated: list[tuple[str, int]] = []

    def phases(self) -> list[Phase]:
        def losses(inputs: Tensor) -> dict[str, Tensor]:
            return {"loss": (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()}

        def make_step() -> Step:
            device, lr = torch.device(self.settings.device), self.settings.lr
            return Step(losses, {"model": self.model}, device=device, lr=lr, ema_decay=0.5)

        def batches(start: int) -> Iterator[tuple[Tensor]]:
            for i in range(start, 100):
                yield (torch.rand(self.settings.batch, 3, generator=torch.Generator().manual_seed(i)),)

        return [Phase(name, self.settings.iterations, make_step, batches) for name in ("first", "second")]

    def fingerprint(self) -> str:
        return self.data

    def is_due(self, phase: Phase, iteration: int) -> bool:
        return iteration > 0 and iteration % 3 == 0 and (phase.name, iteration) not in self.evaluated

    def evaluate(self, status: Status) -> Work[None]:
        yield
        assert status.losses["loss"] > 0
        self.evaluated.append((status.phase.name, status.iteration))

    def finish(self) -> nn.Module:
        return self.model


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"iterations": 4, "batch": 8, "lr": 0.1, "log_every": 1, "save_every": 1, **changes})


def interrupted_run(folder: Path, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(LinearTask(settings(**changes)), folder, progress=Watch(2, label="second"))


def saved(folder: Path) -> tuple[str, int]:
    """Return phase and iteration of the checkpoint."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    return state["phase"], state["iteration"]


def test_a_task_is_trained_in_phases_and_evaluated() -> None:
    task, whole = LinearTask(settings()), Watch()
    assert fit(task, progress=whole) is task.model
    assert list(whole.losses) == [(name, i) for name in ("first", "second") for i in (1, 2, 3, 4)]
    assert task.evaluated == [("first", 3), ("second", 3)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError], ids=["interrupted", "crashed"])
@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_run_resumes_exactly(tmp_path: Path, error: type[BaseException], at: int) -> None:
    expected, whole, before, after = LinearTask(settings()), Watch(), Watch(at, error, label="second"), Watch()
    fit(expected, progress=whole)
    with pytest.raises(error):
        fit(LinearTask(settings()), tmp_path, progress=before)
    torn = tmp_path / f".{'0' * 16}.tmp"
    torn.touch()
    found = LinearTask(settings())
    fit(found, tmp_path, resume=True, progress=after)
    assert not torn.exists()
    assert {**before.losses, **after.losses} == whole.losses
    assert torch.equal(weights(found.model), weights(expected.model))
    assert [(line["phase"], line["iteration"]) for line in lines(tmp_path / "log.jsonl")] == list(whole.losses)
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_run_resumes_only_with_its_settings_data_and_model(tmp_path: Path) -> None:
    interrupted_run(tmp_path)
    for task, problem in ((LinearTask(settings(lr=0.2)), "other settings"), (LinearTask(settings(), "b"), "other data")):
        with pytest.raises(RunFolderError) as error:
            fit(task, tmp_path, resume=True)
        assert error.value.problem == problem
    other = LinearTask(settings())
    other.model = nn.Linear(5, 2)
    with pytest.raises(DamagedFileError, match=r"checkpoint\.pt.*another model"):
        fit(other, tmp_path, resume=True)


def test_the_weights_of_a_checkpoint_are_freed_after_restoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_run(tmp_path)
    state = loop.read_checkpoint(tmp_path / "checkpoint.pt", "cpu")
    monkeypatch.setattr(loop, "read_checkpoint", lambda *_: state)
    fit(LinearTask(settings()), tmp_path, resume=True)
    assert "step" not in state


def test_a_run_that_another_process_started_or_finished_is_not_overwritten(tmp_path: Path) -> None:
    interrupted_run(tmp_path)
    for resume, problem in ((False, "started"), (True, "finished")):
        with pytest.raises(RunFolderError) as error:
            fit(LinearTask(settings()), tmp_path, resume=resume)
        assert error.value.problem == problem
        if not resume:
            fit(LinearTask(settings()), tmp_path, resume=True)


def test_a_second_ctrl_c_does_not_interrupt_the_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = loop.write_checkpoint

    def slow(*given: Any) -> None:
        if given[0]["phase"] == "second":
            os.kill(os.getpid(), signal.SIGINT)
        write(*given)

    monkeypatch.setattr(loop, "write_checkpoint", slow)
    interrupted_run(tmp_path, save_every=0)
    assert saved(tmp_path) == ("second", 2)


def test_checkpoints_are_also_written_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))  # one at the start, one in every step, and one at a checkpoint
    monkeypatch.setattr(loop.time, "monotonic", lambda: 120.0 * next(calls))
    with pytest.raises(MemoryError):
        fit(LinearTask(settings(save_every=0)), tmp_path, progress=Watch(4, MemoryError, label="first"))
    assert saved(tmp_path) == ("first", 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["update", "evaluation"])
def test_a_signal_during_an_update_or_an_evaluation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: signal.Signals
) -> None:
    expected = LinearTask(settings())
    fit(expected)
    update, evaluate, count = torch.optim.AdamW.step, LinearTask.evaluate, iter(range(100))

    def interrupted_update(self: Any, closure: None = None) -> None:
        if next(count) == 3:  # an evaluation follows; the first step is undone
            os.kill(os.getpid(), number)
        update(self)

    def interrupted_evaluate(self: LinearTask, status: Status) -> Work[None]:
        yield
        os.kill(os.getpid(), number)
        yield from evaluate(self, status)

    with monkeypatch.context() as patch:
        if where == "update":
            patch.setattr(torch.optim.AdamW, "step", interrupted_update)
        else:
            patch.setattr(LinearTask, "evaluate", interrupted_evaluate)
        with pytest.raises(KeyboardInterrupt):
            fit(LinearTask(settings(save_every=0)), tmp_path)
    assert saved(tmp_path) == ("first", 3)
    found = LinearTask(settings(save_every=0))
    fit(found, tmp_path, resume=True)
    assert found.evaluated == expected.evaluated
    assert torch.equal(weights(found.model), weights(expected.model))
    assert [line["iteration"] for line in lines(tmp_path / "log.jsonl")] == [1, 2, 3, 4] * 2


def test_only_steps_count_as_training_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra work of the first step (compilation, search for algorithms) is done before the clock starts."""
    now, calls, seconds = [0.0], iter(range(100)), dict[str, float]()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    step, write, evaluate = Step._step, loop.write_checkpoint, LinearTask.evaluate

    def slow_step(self: Any, inputs: Tensor) -> dict[str, Tensor]:
        now[0] += 1000 if next(calls) % 5 == 0 else 1  # the first of a phase is undone, four count
        return step(self, inputs)

    def slow_write(*given: Any) -> None:
        now[0] += 1000
        write(*given)

    def slow_evaluate(self: LinearTask, status: Status) -> Work[None]:
        now[0] += 1000
        seconds[status.phase.name] = status.seconds
        yield from evaluate(self, status)

    monkeypatch.setattr(Step, "_step", slow_step)
    monkeypatch.setattr(loop, "write_checkpoint", slow_write)
    monkeypatch.setattr(LinearTask, "evaluate", slow_evaluate)
    fit(LinearTask(settings(save_every=2)), tmp_path)
    assert seconds == {"first": 3, "second": 4 + 3}


def test_a_diverged_run_keeps_its_last_finite_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="of first") as error:
        fit(LinearTask(settings(lr=1e30)), tmp_path)
    assert error.value.settings == ("lr",)
    state = tmp_path / "checkpoint.pt"
    assert not state.exists() or torch.load(state, weights_only=True)["iteration"] < error.value.iteration


def test_settings_are_validated_by_name() -> None:
    with pytest.raises(SettingError, match="lr must be greater than or equal to 0, got -1") as error:
        settings(lr=-1)
    assert error.value.settings == ("lr",)
