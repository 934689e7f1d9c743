from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from dg_runs import Watch, lines, settings, weights, without_clock
from small_digits import small_digits
from torch import Tensor

from efdm.data.domains import DomainSet
from efdm.dg import training as dg_training
from efdm.dg.classifier import load_classifier
from efdm.dg.evaluate import count_correct
from efdm.dg.settings import Settings
from efdm.dg.training import Trained, train, train_together
from efdm.errors import RunFolderError
from efdm.progress import Progress
from efdm.recognition.settings import identity, resolved, run_label
from efdm.training import fit
from efdm.training.files import read_lines
from efdm.training.step import Step

pytestmark = pytest.mark.usefixtures("quickly")
RESUMED = ("efdmix", "mixup")


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return small_digits(60)


@pytest.fixture(scope="module", params=RESUMED)
def whole(request: pytest.FixtureRequest, data: DomainSet) -> tuple[Settings, Trained, Watch]:
    """Return settings, result and losses of an uninterrupted run."""
    wanted, watch = settings(method=request.param), Watch()
    return wanted, train(wanted, data, progress=watch), watch


def test_the_loss_decreases(data: DomainSet) -> None:
    few = dataclasses.replace(data, splits={d: {**s, "train": s["train"][:8]} for d, s in data.splits.items()})
    watch = Watch()
    trained = train(settings(iterations=40, evaluate_every=0, augmentation="none"), few, progress=watch)
    losses = list(watch.losses.values())
    assert losses[-1] < 0.3 * losses[0]
    seen = few.select(("ink", "neon", "mosaic"), "train")
    correct, count = count_correct(trained.model, few, seen, 32)
    assert count == 24
    assert correct >= 18


def test_content_of_a_record(whole: tuple[Settings, Trained, Watch], data: DomainSet) -> None:
    wanted, trained, watch = whole
    assert [(r["step"], r["last"]) for r in trained.records] == [(3, False), (6, True)]
    last = trained.records[-1]
    assert last["run"] == identity(wanted)
    assert Settings(**last["settings"]) == resolved(wanted)
    assert (last["seed"], last["lanes"], last["device"]) == (0, 1, "cpu")
    assert last["loss"] == pytest.approx(watch.losses[run_label(wanted), 6], rel=1e-5)
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


def test_evaluations_do_not_count_as_training_time(data: DomainSet, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100_000, 1))
    monkeypatch.setattr(fit.time, "perf_counter", lambda: float(next(clock)))
    evaluate = dg_training.evaluate

    def slow(*given: Any, **named: Any) -> Any:
        for _ in range(1000):
            next(clock)
        return evaluate(*given, **named)

    monkeypatch.setattr(dg_training, "evaluate", slow)
    trained = train(settings(evaluate_every=2), data)
    assert trained.records[-1]["seconds"] < 100


def test_set_up_and_files_do_not_count_as_training_time(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra work of the first step (compilation, search for algorithms) is done before the clock starts."""
    now, first = [0.0], [1000.0]
    monkeypatch.setattr(fit.time, "perf_counter", lambda: now[0])
    step, write = Step._step, fit.write_checkpoint

    def slow(self: Any, indices: Tensor) -> dict[str, Tensor]:
        now[0] += 1 + (first.pop() if first else 0)
        return step(self, indices)

    def slow_write(*given: Any) -> None:
        now[0] += 500
        write(*given)

    monkeypatch.setattr(Step, "_step", slow)
    monkeypatch.setattr(fit, "write_checkpoint", slow_write)
    assert train(settings(), data, tmp_path / "run").records[-1]["seconds"] == 6


def test_a_run_resumed_on_another_device_names_both(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings(), data, tmp_path / "run", progress=Watch(4))
    path = tmp_path / "run" / "checkpoint.pt"
    torch.save({**torch.load(path, weights_only=True), "devices": ["cuda"]}, path)
    found = train(settings(), data, tmp_path / "run", resume=True)
    assert [r["device"] for r in found.records] == ["cpu", "cuda and cpu"]


def test_files_of_a_finished_run(data: DomainSet, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path, stop: int
) -> None:
    """Losses, weights and counts are bit-identical when interrupted before or at an evaluation, or inside a block."""
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
def test_a_crashed_run_resumes_from_its_last_checkpoint(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path
) -> None:
    wanted, expected, _ = whole
    with pytest.raises(MemoryError):
        train(wanted, data, tmp_path / "run", progress=Watch(4, MemoryError))
    path = tmp_path / "run" / "records.jsonl"
    (after_checkpoint,) = lines(path)
    assert after_checkpoint["step"] == 3  # the checkpoint is older
    path.write_text(json.dumps({**after_checkpoint, "loss": 77}) + '\n{"step": 4')  # cut off by the crash
    after = Watch()
    found = train(wanted, data, tmp_path / "run", progress=after, resume=True)
    assert [i for _, i in after.losses] == [3, 4, 5, 6]
    assert torch.equal(weights(found), weights(expected))
    assert without_clock(found.records) == without_clock(expected.records)


def test_a_second_ctrl_c_does_not_interrupt_the_saving(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = fit.write_checkpoint

    def slow(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        write(*given)

    monkeypatch.setattr(fit, "write_checkpoint", slow)
    with pytest.raises(KeyboardInterrupt):
        train(settings(save_every=0), data, tmp_path / "run", progress=Watch(2))
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 2


@pytest.mark.parametrize("whole", ["efdmix"], indirect=True)
def test_checkpoints_are_also_written_by_the_clock(
    whole: tuple[Settings, Trained, Watch], data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, expected, _ = whole
    wanted = dataclasses.replace(wanted, save_every=0)
    calls = iter(range(100))  # one at the beginning, one in every step
    monkeypatch.setattr(fit.time, "monotonic", lambda: 90.0 * next(calls))
    with pytest.raises(MemoryError):
        train(wanted, data, tmp_path / "run", progress=Watch(5, MemoryError))
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 4
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert torch.equal(weights(found), weights(expected))


@pytest.mark.parametrize("whole", ["efdmix"], indirect=True)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_update_or_an_evaluation_loses_nothing(
    whole: tuple[Settings, Trained, Watch],
    data: DomainSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop: signal.Signals,
) -> None:
    wanted, expected, _ = whole
    update, count = torch.optim.SGD.step, iter(range(100))

    def interrupted(self: torch.optim.SGD, closure: None = None) -> None:
        if next(count) == 3:  # an evaluation follows; the first step is undone
            os.kill(os.getpid(), stop)
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, data, tmp_path / "run")
    evaluate = dg_training.evaluate

    def stopped(*given: Any, **named: Any) -> Any:
        work = evaluate(*given, **named)
        next(work)
        yield
        os.kill(os.getpid(), stop)
        yield

    with monkeypatch.context() as patch:
        patch.setattr(dg_training, "evaluate", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, data, tmp_path / "run", resume=True)
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 3
    found = train(wanted, data, tmp_path / "run", resume=True)
    assert torch.equal(weights(found), weights(expected))
    assert without_clock(found.records) == without_clock(expected.records)
    logged = [line["iteration"] for line in read_lines(tmp_path / "run" / "log.jsonl")]
    assert logged == list(range(1, wanted.iterations + 1)), "the interrupted step is logged as well"


def test_a_run_resumes_without_its_initial_weights_file(data: DomainSet, tmp_path: Path) -> None:
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


def test_a_run_is_resumed_only_with_its_settings_and_data(data: DomainSet, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a folder"):
        train(settings(), data, resume=True)
    with pytest.raises(RunFolderError, match=r"no checkpoint\.pt"):
        train(settings(), data, tmp_path / "run", resume=True)
    with pytest.raises(KeyboardInterrupt):
        train(settings(), data, tmp_path / "run", progress=Watch(2))
    with pytest.raises(RunFolderError, match="unfinished run"):
        train(settings(), data, tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"lr=0\.05, not 0\.1"):
        train(settings(lr=0.1), data, tmp_path / "run", resume=True)
    renamed = dataclasses.replace(data, names=[f"other {name}" for name in data.names])
    for other in (small_digits(70), renamed):
        with pytest.raises(RunFolderError) as error:
            train(settings(), other, tmp_path / "run", resume=True)
        assert error.value.problem == "other data"
    train(settings(log_every=3, speed="graph"), data, tmp_path / "run", resume=True)
    with pytest.raises(RunFolderError, match="finished run"):
        train(settings(), data, tmp_path / "run", resume=True)


def test_a_folder_takes_one_run_at_a_time(data: DomainSet, tmp_path: Path) -> None:
    run = tmp_path / identity(settings())

    def second(_: Progress) -> None:
        with pytest.raises(RunFolderError, match="another process"):
            train(settings(), data, run, resume=True)
        with pytest.raises(RunFolderError, match="another process"):
            train_together([settings()], data, tmp_path)

    train(settings(iterations=1), data, run, progress=second)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_run_killed_with_sigkill_resumes_exactly(data: DomainSet, tmp_path: Path) -> None:
    """The process is killed in iteration 4, and its last checkpoint is of iteration 2."""

    def die(progress: Progress) -> None:
        if progress.done == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    if (child := os.fork()) == 0:
        train(settings(), data, tmp_path / "run", progress=die)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    after, watch = Watch(), Watch()
    expected = train(settings(), data, progress=watch)
    found = train(settings(), data, tmp_path / "run", resume=True, progress=after)
    assert torch.equal(weights(found), weights(expected))
    assert after.losses == {place: watch.losses[place] for place in after.losses}
    assert without_clock(found.records) == without_clock(expected.records)


def test_unknown_domains_and_too_large_batches_are_refused(data: DomainSet) -> None:
    with pytest.raises(ValueError, match=r"domain 'oil'.* ink, neon"):
        train(settings(train_domains=("oil",)), data)
    with pytest.raises(ValueError, match="do not fill one batch of 1000"):
        train(settings(batch=1000), data)


@pytest.mark.parametrize("how", ["train", "train_together"])
def test_an_unavailable_device_is_refused(data: DomainSet, how: str, tmp_path: Path) -> None:
    wanted = settings(device="cuda:99", precision="bf16", speed="graph")
    with pytest.raises(ValueError, match=r"device='cuda:99'.*device='cpu', precision='fp32', speed='plain'"):
        train(wanted, data, tmp_path / "run") if how == "train" else train_together([wanted], data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
