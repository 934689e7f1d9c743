from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_digits import small_digits
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.dg import run as running
from efdm.dg.checkpoint import load_classifier
from efdm.dg.evaluate import count_correct
from efdm.dg.settings import Settings, identity
from efdm.dg.train import Progress, Trained, train, train_together
from efdm.models.backbones import build_backbone

RESUMED = ("erm", "efdmix", "mixup", "efdmix-labels")


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return small_digits(60)


@pytest.fixture(scope="module", autouse=True)
def _quickly() -> Iterator[None]:
    """Indices of few iterations at once, so that blocks end within a run; no TensorBoard."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "BLOCK", 4)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield


def settings(**changes: Any) -> Settings:
    plain = Settings(
        "digits", ("ink", "neon", "mosaic"), ("outline",), backbone="tiny", size=32, augmentation="digits", batch=16,
        iterations=6, lr=0.05, precision="fp32", speed="plain", device="cpu", log_every=1, evaluate_every=3, save_every=2,
    )  # fmt: skip
    plain = dataclasses.replace(plain, **changes)
    return dataclasses.replace(plain, batches="domains") if "labels" in plain.method else plain


def weights(trained: Trained) -> Tensor:
    return torch.cat([v.detach().flatten().double().cpu() for v in trained.model.state_dict().values()])


def parameters(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])


class Watch:
    """Remembers the losses, and stops the run at one place."""

    def __init__(self, stop: int = 0, error: type[BaseException] = KeyboardInterrupt, run: str = "") -> None:
        self.stop, self.error, self.run = stop, error, run
        self.losses: dict[tuple[str, int], float] = {}

    def __call__(self, told: Progress) -> None:
        self.losses[told.run, told.iteration] = told.losses["loss"]
        if told.iteration == self.stop and self.run in ("", told.run):
            raise self.error


def without_clock(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "per_second", "lanes")} for r in records]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module", params=RESUMED)
def whole(request: pytest.FixtureRequest, data: DomainSet) -> tuple[Settings, Trained, Watch]:
    """A run that nothing happened to."""
    wanted, watch = settings(method=request.param), Watch()
    return wanted, train(wanted, data, progress=watch), watch


# --- what a run does ---------------------------------------------------------------------------------------------------


def test_it_learns_something(data: DomainSet) -> None:
    few = dataclasses.replace(data, splits={d: {**s, "train": s["train"][:8]} for d, s in data.splits.items()})
    watch = Watch()
    trained = train(settings(iterations=40, evaluate_every=0, augmentation="none"), few, progress=watch)
    losses = list(watch.losses.values())
    assert losses[-1] < 0.3 * losses[0]
    seen = few.select(("ink", "neon", "mosaic"), "train")
    correct, count = count_correct(trained.model, few, seen, 32)
    assert count == 24
    assert correct >= 18


def test_what_a_record_says(whole: tuple[Settings, Trained, Watch], data: DomainSet) -> None:
    wanted, trained, watch = whole
    assert [(r["step"], r["last"]) for r in trained.records] == [(3, False), (6, True)]
    last = trained.records[-1]
    assert last["run"] == identity(wanted)
    assert Settings(**last["settings"]) == wanted
    assert (last["seed"], last["lanes"], last["device"]) == (0, 1, "cpu")
    assert last["loss"] == pytest.approx(watch.losses[last["run"], 6], rel=1e-5)
    assert {domain: count for domain, (_, count) in last["val"].items()} == {
        d: len(data.splits[d]["val"]) for d in data.splits
    }
    assert {domain: count for domain, (_, count) in last["test"].items()} == {"outline": 60}
    correct, _ = count_correct(trained.model, data, data.select("outline", "test"), 32)
    assert last["test"]["outline"][0] == correct
    assert last["seconds"] > trained.records[0]["seconds"] > 0
    assert last["per_second"] == pytest.approx(6 / last["seconds"], rel=1e-3)
    assert last["environment"]["versions"]["torch"]
    assert json.loads(json.dumps(last)) == last
    assert not trained.model.training


def test_evaluations_and_checkpoints_change_nothing(data: DomainSet, tmp_path: Path) -> None:
    plain = train(settings(method="efdmix", evaluate_every=0, save_every=0, log_every=100), data)
    busy = train(settings(method="efdmix", evaluate_every=1, save_every=1), data, tmp_path / "run")
    assert torch.equal(weights(plain), weights(busy))
    assert plain.records[-1]["test"] == busy.records[-1]["test"]
    assert (len(plain.records), len(busy.records)) == (1, 6)


def test_evaluations_are_no_time_of_training(data: DomainSet, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 1))
    monkeypatch.setattr(running.time, "perf_counter", lambda: float(next(clock)))
    evaluate = running.evaluate

    def slow(*given: Any, **named: Any) -> Any:
        for _ in range(1000):
            next(clock)
        return evaluate(*given, **named)

    monkeypatch.setattr(running, "evaluate", slow)
    trained = train(settings(evaluate_every=2), data)
    assert trained.records[-1]["seconds"] < 100


def test_the_first_step_and_files_are_no_time_of_training(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling, loading, searching for algorithms: whatever only the first step does is done before the clock starts."""
    now, first = [0.0], [1000.0]
    monkeypatch.setattr(running.time, "perf_counter", lambda: now[0])
    step, write = running.Step._step, running.write

    def slow(self: Any, indices: Tensor) -> dict[str, Tensor]:
        now[0] += 1 + (first.pop() if first else 0)
        return step(self, indices)

    def slow_write(*given: Any) -> None:
        now[0] += 500
        write(*given)

    monkeypatch.setattr(running.Step, "_step", slow)
    monkeypatch.setattr(running, "write", slow_write)
    assert train(settings(), data, tmp_path / "run").records[-1]["seconds"] == 6


def test_a_run_that_went_on_elsewhere_names_both(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings(), data, tmp_path / "run", progress=Watch(4))
    path = tmp_path / "run" / "checkpoint.pt"
    torch.save({**torch.load(path, weights_only=True), "devices": ["cuda"]}, path)
    found = train(settings(), data, tmp_path / "run", resume=True)
    assert [r["device"] for r in found.records] == ["cpu", "cuda and cpu"]


def test_what_a_run_leaves(data: DomainSet, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    trained = train(settings(log_every=2), data, folder)
    assert sorted(p.name for p in folder.iterdir()) == [
        "done", "environment.json", "log.jsonl", "model.safetensors", "records.jsonl", "settings.json",
    ]  # fmt: skip
    assert lines(folder / "records.jsonl") == trained.records
    log = lines(folder / "log.jsonl")
    assert [(r["phase"], r["iteration"]) for r in log] == [("train", 2), ("train", 4), ("train", 6)]
    assert {"loss", "lr", "per_second"} <= set(log[0])
    model, classes, size = load_classifier(folder / "model.safetensors")
    assert (classes, size) == (data.classes, 32)
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), trained.model(images))


def test_the_learning_rate_follows_its_schedule(data: DomainSet, tmp_path: Path) -> None:
    train(settings(), data, tmp_path / "run")
    rates = [r["lr"] for r in lines(tmp_path / "run" / "log.jsonl")]
    assert rates[0] == 0.05
    assert rates[3] == pytest.approx(0.025)
    assert rates == sorted(rates, reverse=True)


# --- interrupted and resumed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_run_is_the_run(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path, stop: int
) -> None:
    """Losses, weights and counts to the last bit: before an evaluation, at one, in the middle of a block."""
    wanted, expected, watch = whole
    before, after = Watch(stop), Watch()
    with pytest.raises(KeyboardInterrupt):
        train(wanted, data, tmp_path / "run", progress=before)
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["iteration"] == stop
    found = train(wanted, data, tmp_path / "run", progress=after, resume=True)
    assert {**before.losses, **after.losses} == watch.losses
    assert min(i for _, i in after.losses) == stop + 1
    assert torch.equal(weights(found), weights(expected))
    assert without_clock(found.records) == without_clock(expected.records)
    assert [r["iteration"] for r in lines(tmp_path / "run" / "log.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert lines(tmp_path / "run" / "records.jsonl") == found.records


@pytest.mark.parametrize("whole", ["efdmix"], indirect=True)
def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path
) -> None:
    wanted, expected, _ = whole
    with pytest.raises(MemoryError):
        train(wanted, data, tmp_path / "run", progress=Watch(4, MemoryError))
    path = tmp_path / "run" / "records.jsonl"
    (after_checkpoint,) = lines(path)
    assert after_checkpoint["step"] == 3  # and belongs to what is lost
    path.write_text(json.dumps({**after_checkpoint, "loss": 77}) + '\n{"step": 4')  # cut off while it was written
    after = Watch()
    found = train(wanted, data, tmp_path / "run", progress=after, resume=True)
    assert [i for _, i in after.losses] == [3, 4, 5, 6]
    assert torch.equal(weights(found), weights(expected))
    assert without_clock(found.records) == without_clock(expected.records)


@pytest.mark.parametrize("whole", ["erm"], indirect=True)
def test_ctrl_c_in_the_middle_of_an_update_or_an_evaluation_loses_nothing(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, expected, _ = whole
    update, count = torch.optim.SGD.step, iter(range(100))

    def interrupted(self: torch.optim.SGD, closure: None = None) -> None:
        if next(count) == 3:  # an evaluation is due after this one; the first is undone
            os.kill(os.getpid(), signal.SIGINT)
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, data, tmp_path / "run")
    evaluate = running.evaluate

    def stopped(*given: Any, **named: Any) -> Any:
        work = evaluate(*given, **named)
        next(work)
        yield
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "evaluate", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, data, tmp_path / "run", resume=True)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 3
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert torch.equal(weights(found), weights(expected))
    assert without_clock(found.records) == without_clock(expected.records)


def test_the_file_that_a_run_began_with_may_be_gone(data: DomainSet, tmp_path: Path) -> None:
    first = train(settings(iterations=1), data, tmp_path / "first")
    begin = tmp_path / "begin.safetensors"
    begin.write_bytes((tmp_path / "first" / "model.safetensors").read_bytes())
    wanted = settings(weights=str(begin), lr=1e-9)
    with pytest.raises(KeyboardInterrupt):
        train(wanted, data, tmp_path / "run", progress=Watch(2))
    begin.unlink()
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert len({r["run"] for r in found.records}) == 1
    assert all(r["settings"]["weights_sha256"] for r in found.records)
    torch.testing.assert_close(*(next(t.model.parameters()) for t in (found, first)))


def test_a_run_is_resumed_as_itself_or_not_at_all(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a run without a folder has no checkpoint"):
        train(settings(), data, resume=True)
    with pytest.raises(ValueError, match="has no checkpoint to resume from"):
        train(settings(), data, tmp_path / "run", resume=True)
    with pytest.raises(KeyboardInterrupt):
        train(settings(), data, tmp_path / "run", progress=Watch(2))
    with pytest.raises(ValueError, match="has a run already; resume it"):
        train(settings(), data, tmp_path / "run")
    with pytest.raises(ValueError, match=r"began with lr 0\.05, not 0\.1; resume it with its own settings"):
        train(settings(lr=0.1), data, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"not the pictures that the run in .* began with"):
        train(settings(), small_digits(70), tmp_path / "run", resume=True)
    train(settings(log_every=3, speed="graph"), data, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="has a finished run"):
        train(settings(), data, tmp_path / "run", resume=True)


# --- several -----------------------------------------------------------------------------------------------------------


def test_several_are_what_each_is_alone(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(method=m, seed=s, evaluate_every=0) for m in ("erm", "efdmix") for s in (0, 1)]
    made: list[Trained] = []
    train_together(runs, data, tmp_path, lanes=3, finished=made.append)
    assert [t.settings for t in made] == runs
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(map(identity, runs))
    for found, wanted in zip(made, runs, strict=True):
        assert torch.equal(weights(found), weights(train(wanted, data)))
        assert found.records[-1]["lanes"] == 1  # on a CPU one after the other


def test_an_interrupted_sweep_goes_on_and_repeats_nothing(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(seed=s, evaluate_every=0) for s in range(3)]
    expected = [weights(train(wanted, data)) for wanted in runs]
    with pytest.raises(KeyboardInterrupt):
        train_together(runs, data, tmp_path, progress=Watch(3, run=identity(runs[1])))
    after, made = Watch(), []
    train_together(runs, data, tmp_path, progress=after, finished=made.append)
    assert [t.settings.seed for t in made] == [0, 1, 2]
    assert [len([1 for run, _ in after.losses if run == identity(wanted)]) for wanted in runs] == [0, 3, 6]
    assert all(torch.equal(weights(t), w) for t, w in zip(made, expected, strict=True))
    assert [len(t.records) for t in made] == [1, 1, 1]


def test_one_that_explodes_does_not_stop_the_others_and_is_tried_again(data: DomainSet, tmp_path: Path) -> None:
    runs = [settings(seed=s, lr=1e30 if s == 1 else 0.05, evaluate_every=0) for s in range(3)]
    for _ in range(2):
        made: list[Trained] = []
        watch = Watch()
        with pytest.raises(FloatingPointError, match=r"^1 of 3 runs came to no end, all others did: the loss is") as error:
            train_together(runs, data, tmp_path, progress=watch, finished=made.append)
        assert identity(runs[1]) in str(error.value)
        assert "seed 1" in str(error.value)
        assert [t.settings.seed for t in made] == [0, 2]
        assert identity(runs[1]) in {run for run, _ in watch.losses}
    assert not (tmp_path / identity(runs[1]) / "done").exists()


def test_ctrl_c_in_a_run_that_exploded_is_still_ctrl_c(data: DomainSet, tmp_path: Path) -> None:
    """There is nothing to save, but the sweep must not go on."""
    runs = [settings(seed=s, lr=1e30, log_every=100, save_every=0, evaluate_every=0) for s in range(2)]
    step, count = running.Step.__call__, iter(range(100))

    def interrupted(self: Any, *given: Any) -> Tensor:
        loss = step(self, *given)
        if next(count) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.Step, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_together(runs, data, tmp_path)
    assert next(count) == 4


def test_another_file_of_the_same_name_is_another_run(data: DomainSet, tmp_path: Path) -> None:
    """Every training leaves a model.safetensors to begin others with."""
    for seed in (0, 1):
        train(settings(iterations=1, seed=seed), data, tmp_path / str(seed))
    first, second = (settings(weights=str(tmp_path / n / "model.safetensors"), lr=1e-9) for n in "01")
    made: list[Trained] = []
    for one in (first, second, first):
        train_together([one], data, tmp_path / "runs", finished=made.append)
    a, b, again = (next(t.model.parameters()) for t in made)
    assert not torch.equal(a, b)
    assert torch.equal(a, again)
    names = [t.records[-1]["run"] for t in made]
    assert names[0] == names[2] != names[1]
    assert len(made[0].records[-1]["settings"]["weights_sha256"]) == 12


def test_what_cannot_be_trained_together_is_told(data: DomainSet) -> None:
    with pytest.raises(ValueError, match="1 of these runs are there twice"):
        train_together([settings(), settings(log_every=9), settings(seed=1)], data)
    with pytest.raises(ValueError, match="share one device, these want cpu, cuda"):
        train_together([settings(), settings(device="cuda", seed=1)], data)
    train_together([], data)


# --- what can be wrong -------------------------------------------------------------------------------------------------


def test_a_loss_that_explodes_stops_the_run_and_is_not_saved(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(
        FloatingPointError, match=r"the loss is (nan|inf) at iteration \d of erm .*; try a lower learning rate"
    ):
        train(settings(lr=1e30, save_every=1), data, tmp_path / "run")
    state = tmp_path / "run" / "checkpoint.pt"
    assert not state.exists() or torch.load(state, weights_only=True)["iteration"] < 2


def test_a_domain_that_is_not_there_is_told(data: DomainSet) -> None:
    with pytest.raises(ValueError, match="there is no domain 'oil'; choose from ink, neon"):
        train(settings(train_domains=("oil",)), data)
    with pytest.raises(ValueError, match="do not fill one batch of 1000"):
        train(settings(batch=1000), data)


# --- on a GPU ----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("lanes", [2, 3])
def test_side_by_side_each_is_what_it_is_alone(data: DomainSet, lanes: int) -> None:
    """Four runs, so that lanes are used again; as alike as sums in another order allow.

    No loss is read before the end and nothing is saved or evaluated: whoever waits for a lane after each step never has
    two at work at once. A rate at which what is rounded otherwise stays small over fifty steps.
    """
    quiet = {"log_every": 1000, "save_every": 0, "evaluate_every": 0}
    runs = [
        settings(method=m, seed=s, device="cuda", speed="graph", iterations=50, batch=96, lr=0.005, **quiet)
        for m in ("erm", "efdmix") for s in (0, 1)
    ]  # fmt: skip
    alone, together = [], []
    train_together(runs, data, lanes=1, finished=alone.append)
    train_together(runs, data, lanes=lanes, finished=together.append)
    assert {t.records[-1]["lanes"] for t in together} == {lanes}
    found = {identity(t.settings): t for t in together}
    for expected in alone:
        same = found[identity(expected.settings)]
        assert same.records[-1]["loss"] == pytest.approx(expected.records[-1]["loss"], rel=0.02)
        torch.manual_seed(expected.settings.seed)
        begin, one, two = map(parameters, (build_backbone("tiny", 10), expected.model, same.model))
        assert (two - one).norm() < 0.2 * (one - begin).norm()  # another method: 0.4 and more; rounding: less than 0.1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("lanes", [1, 2])
def test_runs_on_a_gpu_go_on_where_they_were_interrupted(data: DomainSet, tmp_path: Path, lanes: int) -> None:
    """Told of every eighth step alone, so that two lanes are at work when one is interrupted."""
    quiet = {"log_every": 8, "save_every": 0, "evaluate_every": 0, "iterations": 32, "lr": 0.005}
    runs = [settings(method=m, device="cuda", speed="graph", batch=96, **quiet) for m in ("efdmix", "mixup")]
    whole, before, after = Watch(), Watch(16), Watch()
    train_together(runs, data, lanes=lanes, progress=whole)
    with pytest.raises(KeyboardInterrupt):
        train_together(runs, data, tmp_path, lanes=lanes, progress=before)
    train_together(runs, data, tmp_path, lanes=lanes, progress=after)
    found = {**before.losses, **after.losses}
    assert set(found) == set(whole.losses)
    assert min(i for run, i in after.losses if run == identity(runs[0])) > 8  # not from its beginning
    for place, loss in whole.losses.items():
        assert found[place] == pytest.approx(loss, rel=0.02), place


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_memory_of_finished_runs_is_given_back(data: DomainSet) -> None:
    """All of it: what a graph keeps for itself is reserved and not allocated."""
    used = []

    def finished(_: Trained) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        used.append(torch.cuda.memory_reserved())

    runs = [settings(seed=s, device="cuda", speed="graph", batch=96, evaluate_every=0) for s in range(6)]
    train_together(runs, data, lanes=1, finished=finished)
    assert used[-1] <= used[1] + 2**23  # a graph of these runs takes more than that, and four would be left over
