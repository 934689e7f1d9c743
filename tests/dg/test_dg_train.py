from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from dg_runs import Watch, lines, settings, weights, without_clock
from small_digits import small_digits
from torch import Tensor
from torn import tear_files

from efdm.data.domains import DomainSet
from efdm.dg import run as running
from efdm.dg.checkpoint import load_classifier
from efdm.dg.evaluate import count_correct
from efdm.dg.settings import Settings, identity, resolved
from efdm.dg.training import Progress, Trained, train, train_together
from efdm.training.files import read_lines

pytestmark = pytest.mark.usefixtures("quickly")
RESUMED = ("erm", "efdmix", "mixup", "efdmix-labels")


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return small_digits(60)


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
    assert Settings(**last["settings"]) == resolved(wanted)
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
    trained = train(settings(log_every=2, size=28), data, folder)
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock", "done", "environment.json", "log.jsonl", "model.safetensors", "records.jsonl", "settings.json",
    ]  # fmt: skip
    assert lines(folder / "records.jsonl") == trained.records
    log = lines(folder / "log.jsonl")
    assert [(r["phase"], r["iteration"]) for r in log] == [("train", 2), ("train", 4), ("train", 6)]
    assert {"loss", "lr", "per_second"} <= set(log[0])
    found = load_classifier(folder / "model.safetensors")
    assert (found.classes, found.size, found.stored_size) == (data.classes, 28, 32)
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(found.model(images), trained.model(images))


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


def test_whoever_cannot_wait_does_not_interrupt_the_saving(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = running.write

    def slow(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        write(*given)

    monkeypatch.setattr(running, "write", slow)
    with pytest.raises(KeyboardInterrupt):
        train(settings(save_every=0), data, tmp_path / "run", progress=Watch(2))
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 2


@pytest.mark.parametrize("whole", ["efdmix"], indirect=True)
def test_after_some_minutes_a_run_is_saved_whatever_its_settings_say(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, expected, _ = whole
    wanted = dataclasses.replace(wanted, save_every=0)
    looks = iter(range(100))  # one at the beginning, one in every step
    monkeypatch.setattr(running.time, "monotonic", lambda: 90.0 * next(looks))
    with pytest.raises(MemoryError):
        train(wanted, data, tmp_path / "run", progress=Watch(5, MemoryError))
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 4
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert torch.equal(weights(found), weights(expected))


@pytest.mark.parametrize("whole", ["erm"], indirect=True)
@pytest.mark.parametrize("told_by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_an_update_or_an_evaluation_loses_nothing(
    whole: tuple[Settings, Trained, Watch],
    data: DomainSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told_by: signal.Signals,
) -> None:
    wanted, expected, _ = whole
    update, count = torch.optim.SGD.step, iter(range(100))

    def interrupted(self: torch.optim.SGD, closure: None = None) -> None:
        if next(count) == 3:  # an evaluation is due after this one; the first is undone
            os.kill(os.getpid(), told_by)
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
        os.kill(os.getpid(), told_by)
        yield

    with monkeypatch.context() as patch:
        patch.setattr(running, "evaluate", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, data, tmp_path / "run", resume=True)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 3
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert torch.equal(weights(found), weights(expected))
    assert without_clock(found.records) == without_clock(expected.records)
    told = [line["iteration"] for line in read_lines(tmp_path / "run" / "log.jsonl") if line["phase"] == "train"]
    assert told == list(range(1, wanted.iterations + 1)), "every step has its line, also the one that was interrupted"


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


def test_a_disk_that_is_full_when_a_run_goes_on_costs_no_record(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings(), data, tmp_path / "run", progress=Watch(4))
    before = (tmp_path / "run" / "records.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        tear_files(patch, OSError)
        with pytest.raises(OSError):  # noqa: PT011
            train(settings(), data, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == before != b""
    train(settings(), data, tmp_path / "run", resume=True)


def test_two_trainings_at_once_in_one_folder_are_refused(data: DomainSet, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    run = tmp_path / identity(settings())

    def second(told: Progress) -> None:
        with pytest.raises(ValueError, match="is at work in"):
            train(settings(), data, run, resume=True)
        with pytest.raises(ValueError, match="is at work in"):
            train_together([settings()], data, tmp_path)

    train(settings(), data, run, progress=second)
    assert not (run / "lock").exists()


# --- what can be wrong -------------------------------------------------------------------------------------------------


def test_a_loss_that_explodes_stops_the_run_and_is_not_saved(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(
        FloatingPointError, match=r"the loss is (nan|inf) at iteration \d of erm .*; try a lower learning rate"
    ):
        train(settings(lr=1e30, save_every=1), data, tmp_path / "run")
    state = tmp_path / "run" / "checkpoint.pt"
    assert not state.exists() or torch.load(state, weights_only=True)["iteration"] < 2


def test_a_domain_that_is_not_there_is_told(data: DomainSet) -> None:
    with pytest.raises(ValueError, match=r"domain 'oil'.* ink, neon"):
        train(settings(train_domains=("oil",)), data)
    with pytest.raises(ValueError, match="do not fill one batch of 1000"):
        train(settings(batch=1000), data)


@pytest.mark.parametrize("how", ["train", "train_together"])
def test_a_device_that_is_not_there_is_told_with_what_to_give_instead(data: DomainSet, how: str, tmp_path: Path) -> None:
    wanted = settings(device="cuda:99", precision="bf16", speed="graph")
    sentence = 'device=\'cuda:99\' cannot be used here; on a CPU give device="cpu", precision="fp32", speed="plain"'
    with pytest.raises(ValueError, match=re.escape(sentence)):
        train(wanted, data, tmp_path / "run") if how == "train" else train_together([wanted], data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
