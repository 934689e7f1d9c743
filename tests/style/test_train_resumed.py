from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from style_runs import Watch, records, settings, small, weights
from training import train

from efdm.models import StyleNetwork
from efdm.models.weights import read
from efdm.style import training
from efdm.style.training import Settings
from efdm.training.log import Log

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture(scope="module", params=["small", "vgg16"])
def whole(request: pytest.FixtureRequest, place: Path) -> tuple[Settings, StyleNetwork, Watch, Path]:
    """A run that nothing happened to."""
    wanted, watch, run = {"small": small, "vgg16": settings}[request.param](place), Watch(), place / request.param
    return wanted, train(wanted, run, log_every=1, preview_every=0, progress=watch), watch, run


@pytest.mark.parametrize("stop", [("reconstruct", 1), ("reconstruct", 3), ("style", 2)])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    whole: tuple[Settings, StyleNetwork, Watch, Path], tmp_path: Path, stop: tuple[str, int]
) -> None:
    wanted, expected, watch, run = whole
    if stop not in watch.losses:
        pytest.skip("a VGG's decoder has one phase")
    before, after = Watch(*stop), Watch()
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, progress=before)
    assert not (tmp_path / "run" / "done").exists()
    found = train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert not set(before.losses) & set(after.losses)  # nothing was done twice
    assert {**before.losses, **after.losses} == watch.losses
    assert records(tmp_path / "run") == records(run)
    assert torch.equal(weights(found), weights(expected))
    saved = [read(each / "network.safetensors") for each in (tmp_path / "run", run)]
    assert all(torch.equal(saved[0][k], saved[1][k]) for k in saved[1])


@pytest.mark.parametrize("whole", ["small"], indirect=True)
@pytest.mark.parametrize("stop", [("style", 1), ("style", 3)], ids=["after_a_phase", "after_a_checkpoint"])
def test_a_run_that_broke_goes_on_from_its_last_checkpoint(
    whole: tuple[Settings, StyleNetwork, Watch, Path], tmp_path: Path, stop: tuple[str, int]
) -> None:
    wanted, expected, watch, run = whole
    before, after = Watch(*stop, error=RuntimeError), Watch()
    with pytest.raises(RuntimeError):
        train(wanted, tmp_path / "run", log_every=1, save_every=2, progress=before)
    with (tmp_path / "run" / "log.jsonl").open("a") as log:
        log.write('{"phase": "sty')  # the machine stopped here
    found = train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert stop in after.losses
    assert {**before.losses, **after.losses} == watch.losses
    assert records(tmp_path / "run") == records(run)
    assert torch.equal(weights(found), weights(expected))


@pytest.mark.parametrize("whole", ["small"], indirect=True)
def test_a_finished_run_resumed_is_finished_again(whole: tuple[Settings, StyleNetwork, Watch, Path]) -> None:
    wanted, expected, _, run = whole
    watch = Watch()
    found = train(wanted, run, resume=True, preview_every=0, progress=watch)
    assert watch.losses == {}
    assert torch.equal(weights(found), weights(expected))


def test_a_run_that_broke_before_its_first_checkpoint_begins_anew(place: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        train(settings(place), tmp_path / "run", log_every=1, progress=Watch("style", 2, RuntimeError))
    with pytest.raises(ValueError, match="has no checkpoint to resume from; leave --resume out"):
        train(settings(place), tmp_path / "run", resume=True)
    train(settings(place), tmp_path / "run", log_every=1)
    assert [r["iteration"] for r in records(tmp_path / "run")] == [1, 2, 3]


def test_after_some_minutes_a_run_is_saved_whatever_its_settings_say(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SECONDS", -1.0)  # they are over at once
    with pytest.raises(RuntimeError):
        train(settings(place), tmp_path / "run", log_every=1, progress=Watch("style", 2, RuntimeError))
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["iteration"] == 1


def test_the_network_a_run_started_with_may_be_gone(place: Path, tmp_path: Path) -> None:
    train(small(place, reconstruct=0, iterations=1), tmp_path / "first")
    start = tmp_path / "first" / "network.safetensors"
    wanted = small(place, reconstruct=0, start=str(start))
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, progress=Watch("style", 2))
    start.unlink()
    train(wanted, tmp_path / "run", resume=True)


def test_a_run_is_resumed_as_itself_or_not_at_all(place: Path, tmp_path: Path) -> None:
    train(settings(place, iterations=1), tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    with pytest.raises(ValueError, match=r"began with iterations 1, not 2, lr 0\.001, not 0\.1; resume it with its own"):
        train(settings(place, iterations=2, lr=0.1), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before
    (place / "content").rename(tmp_path / "moved")
    try:
        train(settings(place, iterations=1, content=str(tmp_path / "moved"), speed="graph"), tmp_path / "run", resume=True)
    finally:
        (tmp_path / "moved").rename(place / "content")


def test_a_run_is_not_overwritten(place: Path, tmp_path: Path) -> None:
    train(settings(place, iterations=1), tmp_path / "run")
    with pytest.raises(ValueError, match=r"has a run already; resume it .*, or choose another folder"):
        train(settings(place, iterations=1), tmp_path / "run")


@pytest.mark.parametrize("whole", ["small"], indirect=True)
@pytest.mark.parametrize("told_by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_step_loses_nothing(
    whole: tuple[Settings, StyleNetwork, Watch, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told_by: signal.Signals,
) -> None:
    wanted, expected, watch, run = whole
    update, count = torch.optim.AdamW.step, iter(range(100))

    def interrupted(self: torch.optim.AdamW) -> None:
        if next(count) == 4:
            os.kill(os.getpid(), told_by)
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, tmp_path / "run", log_every=1, preview_every=2)
    previews = sorted(p.name for p in (tmp_path / "run" / "previews").iterdir())
    assert previews == ["reconstruct-0000002.jpg", "style-0000002.jpg"]
    after = Watch()
    found = train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert {k: watch.losses[k] for k in after.losses} == after.losses
    assert list(after.losses) == [("style", 3)]
    assert records(tmp_path / "run") == records(run)  # also of the step that it came in
    assert torch.equal(weights(found), weights(expected))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("whole", ["small", "vgg16"], indirect=True)
@pytest.mark.parametrize("before", ["cpu", "cuda"])
def test_a_run_goes_on_on_a_gpu(whole: tuple[Settings, StyleNetwork, Watch, Path], tmp_path: Path, before: str) -> None:
    """Begun here or there: its losses are nearly those of the run on a CPU, which is as exact as a GPU's sums."""
    wanted, _, watch, _ = whole
    speeds = {"cpu": "plain", "cuda": "graph"}
    here, there = (dataclasses.replace(wanted, device=name, speed=speeds[name]) for name in (before, "cuda"))
    first, second = Watch("style", 2), Watch()
    with pytest.raises(KeyboardInterrupt):
        train(here, tmp_path / "run", log_every=1, preview_every=0, progress=first)
    train(there, tmp_path / "run", log_every=1, preview_every=0, progress=second, resume=True)
    assert list(second.losses) == [("style", 3)]
    found = {**first.losses, **second.losses}
    assert set(found) == set(watch.losses)
    # the random directions are the device's own, and Adam's first steps follow signs: not the same run to the last digit
    for place, losses in watch.losses.items():
        assert found[place]["loss"] == pytest.approx(losses["loss"], rel=0.15), place


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("make", [settings, small])
def test_a_captured_run_in_bf16_goes_on_as_if_it_had_not_been_interrupted(
    place: Path, tmp_path: Path, make: Callable[..., Settings]
) -> None:
    wanted = make(place, device="cuda", precision="bf16", speed="graph", iterations=5, lr=1e-4)
    whole, before, after = Watch(), Watch("style", 3), Watch()
    train(wanted, tmp_path / "whole", log_every=1, preview_every=0, progress=whole)
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=before)
    train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert list(after.losses) == [("style", 4), ("style", 5)]
    for place_of, losses in {**before.losses, **after.losses}.items():
        assert losses["loss"] == pytest.approx(whole.losses[place_of]["loss"], rel=0.1), place_of


def test_a_broken_run_leaves_its_log_closed(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[Log] = []

    def opened(*given: Any, **options: Any) -> Log:
        logs.append(Log(*given, **options))
        return logs[-1]

    monkeypatch.setattr(training, "Log", opened)
    with pytest.raises(RuntimeError):
        train(settings(place), tmp_path / "run", log_every=1, progress=Watch("style", 2, RuntimeError))
    assert [log.file.closed for log in logs] == [True]
