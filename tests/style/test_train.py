from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training import noise_pictures, one_picture, train, vgg_file

from efdm.data import ImageSet, PictureError
from efdm.models import StyleNetwork, build
from efdm.models.weights import load_network, read
from efdm.style import train as training
from efdm.style.train import Batches, Progress, Settings
from efdm.training.log import Log


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four photographs, three paintings, and a VGG that has learnt nothing."""
    folder = tmp_path_factory.mktemp("training")
    noise_pictures(folder / "content", 4, seed=1)
    noise_pictures(folder / "style", 3, seed=2)
    vgg_file(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _quickly() -> Iterator[None]:
    """A draw of few iterations at once, no TensorBoard unless a test wants it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BLOCK", 2)
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        yield


def settings(place: Path, **changes: Any) -> Settings:
    common = {
        "content": str(place / "content"), "style": str(place / "style"), "vgg": str(place / "random-vgg16.safetensors"),
        "size": 16, "short_side": 20, "batch": 2, "precision": "fp32", "speed": "plain", "device": "cpu", "lr": 1e-3,
    }  # fmt: skip
    return Settings.for_encoder(**{"encoder": "vgg16", **common, "style_weight": 10.0, "iterations": 3, **changes})


def small(place: Path, **changes: Any) -> Settings:
    recipe = {"encoder": "small", "iterations": 3, "reconstruct": 3, "average": 0.8, "schedule": "paper"}
    weights = {"style_weight": 2.0, "sliced_weight": 1.0, "identity_weight": 1.0}
    return settings(place, **{**recipe, **weights, **changes})


def weights(network: StyleNetwork) -> Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def records(run: Path) -> list[dict[str, Any]]:
    """The log without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "per_second"} for line in lines]


class Watch:
    """Remembers the losses, and stops the run at one place."""

    def __init__(self, phase: str = "", iteration: int = 0, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.stop, self.error = (phase, iteration), error
        self.losses: dict[tuple[str, int], dict[str, float]] = {}

    def __call__(self, told: Progress) -> None:
        self.losses[told.phase, told.iteration] = told.losses
        if (told.phase, told.iteration) == self.stop:
            raise self.error


@pytest.fixture(scope="module", params=["small", "vgg16"])
def whole(request: pytest.FixtureRequest, place: Path) -> tuple[Settings, StyleNetwork, Watch, Path]:
    """A run that nothing happened to."""
    wanted, watch, run = {"small": small, "vgg16": settings}[request.param](place), Watch(), place / request.param
    return wanted, train(wanted, run, log_every=1, preview_every=0, progress=watch), watch, run


# --- what a run does ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [settings, small])
def test_the_loss_of_one_pair_goes_down(place: Path, tmp_path: Path, make: Callable[..., Settings]) -> None:
    content, style = (str(one_picture(tmp_path / str(n), seed=n, side=16)) for n in (1, 3))
    wanted = make(place, content=content, style=style, short_side=16, sliced_weight=0.0, lr=4e-4, seed=1)
    wanted = dataclasses.replace(wanted, iterations=12, reconstruct=4 * wanted.reconstruct)
    watch = Watch()
    train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=watch)
    for phase in ("reconstruct", "style") if wanted.reconstruct else ("style",):
        losses = [v["loss"] for (p, _), v in watch.losses.items() if p == phase]
        assert len(losses) == 12
        assert losses[-1] < 0.95 * losses[0], (phase, losses)


def test_only_the_decoder_of_a_vgg_is_trained(place: Path, tmp_path: Path) -> None:
    wanted = settings(place)
    before = training.make_network(wanted)
    after = train(wanted, tmp_path / "run")
    assert torch.equal(weights(before.stages[0]), weights(after.stages[0]))  # type: ignore[arg-type]
    assert not torch.equal(weights(before.decoder), weights(after.decoder))  # type: ignore[arg-type]


def test_the_first_stage_learns_to_reconstruct_and_then_stays(place: Path, tmp_path: Path) -> None:
    one = train(small(place, iterations=1), tmp_path / "one")
    two = train(small(place, iterations=2), tmp_path / "two")
    assert torch.equal(weights(one.stages[0]), weights(two.stages[0]))  # type: ignore[arg-type]
    assert not torch.equal(weights(one.stages[1]), weights(two.stages[1]))  # type: ignore[arg-type]
    assert not torch.equal(weights(one.stages[0]), weights(training.make_network(small(place)).stages[0]))  # type: ignore[arg-type]


def test_what_a_run_leaves(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    wanted = small(place, iterations=5, reconstruct=2, log_every=2, preview_every=3)
    network = train(wanted, run)
    assert Settings(**json.loads((run / "settings.json").read_text())) == wanted
    told = json.loads((run / "environment.json").read_text())
    assert (told["contents"], told["styles"], told["skipped"]) == (4, 3, [])
    assert told["versions"]["torch"]
    lines = records(run)
    assert [(r["phase"], r["iteration"]) for r in lines] == [("reconstruct", 2), ("style", 2), ("style", 4), ("style", 5)]
    assert {"loss", "pixels", "likeness", "distilled", "gradient", "lr"} <= set(lines[0])
    assert {"loss", "content", "style", "identity", "sliced", "gradient", "lr"} <= set(lines[-1])
    assert sorted(p.name for p in (run / "previews").iterdir()) == ["final.jpg", "style-0000003.jpg"]
    assert (run / "done").exists()
    again = load_network(build("small"), run / "network.safetensors")
    torch.testing.assert_close(weights(again), weights(network), rtol=1e-3, atol=1e-4)


def test_previews_and_checkpoints_change_nothing(place: Path, tmp_path: Path) -> None:
    plain = train(settings(place), tmp_path / "plain", preview_every=0)
    watched = train(settings(place), tmp_path / "watched", preview_every=1, save_every=1, log_every=1)
    assert torch.equal(weights(plain), weights(watched))
    assert not (tmp_path / "plain" / "previews").exists()


def test_tensorboard_is_written_where_it_is_installed(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard")
    pytest.importorskip("tensorboard")
    train(settings(place, iterations=1), tmp_path / "run")
    (events,) = (tmp_path / "run" / "tensorboard" / "style").iterdir()
    assert b"style/loss" in events.read_bytes()


def test_the_averaged_weights_are_what_is_saved(place: Path, tmp_path: Path) -> None:
    network = train(small(place, reconstruct=0, average=0.5), tmp_path / "run")
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    names = [n for n, _ in network.named_parameters() if not n.startswith("stages.0.")]
    average = dict(zip(names, state["step"]["averaged"], strict=True))
    saved = read(tmp_path / "run" / "network.safetensors")
    assert all(torch.equal(saved[n], average[n].half()) for n in names)
    assert any(not torch.equal(saved[n], state["network"][n].half()) for n in names)


def test_a_run_can_start_with_a_network(place: Path, tmp_path: Path) -> None:
    first = train(small(place, reconstruct=0), tmp_path / "first")
    start = str(tmp_path / "first" / "network.safetensors")
    still = {"reconstruct": 0, "iterations": 1, "weight_decay": 0.0, "seed": 5}
    second = train(small(place, lr=0.0, start=start, **still), tmp_path / "second")
    torch.testing.assert_close(weights(second), weights(first).half().float(), rtol=0, atol=0)
    other = train(small(place, lr=0.0, **still), tmp_path / "other")
    assert not torch.equal(weights(other), weights(second))


def test_a_run_can_go_on_counting_from_another(place: Path, tmp_path: Path) -> None:
    """With the learning rates and the pictures of the longer run it continues."""
    still = {"reconstruct": 0, "lr": 1e-9, "weight_decay": 0.0, "iterations": 4}
    train(small(place, **still), tmp_path / "long", log_every=1)
    train(small(place, **{**still, "iterations": 2}), tmp_path / "first", log_every=1)
    start = str(tmp_path / "first" / "network.safetensors")
    train(small(place, **still, start=start, begun=2), tmp_path / "second", log_every=1)
    read = lambda run: [json.loads(line) for line in (tmp_path / run / "log.jsonl").read_text().splitlines()]  # noqa: E731
    wanted, found = read("long")[2:], read("second")
    assert [r["iteration"] for r in found] == [3, 4]
    assert [r["lr"] for r in found] == [r["lr"] for r in wanted]
    assert [r["loss"] for r in found] == pytest.approx([r["loss"] for r in wanted], rel=1e-2)  # stored as halves


def test_damaged_pictures_are_left_out_and_named(place: Path, tmp_path: Path) -> None:
    noise_pictures(tmp_path / "content", 2, seed=3)
    (tmp_path / "content" / "torn.png").write_bytes((tmp_path / "content" / "0.png").read_bytes()[:60])
    (tmp_path / "content" / "empty.jpg").touch()
    train(settings(place, content=str(tmp_path / "content"), iterations=1), tmp_path / "run")
    told = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert told["contents"] == 2
    assert len(told["skipped"]) == 2
    assert all(any(name in line for line in told["skipped"]) for name in ("torn.png", "empty.jpg"))


# --- what is drawn -----------------------------------------------------------------------------------------------------


def test_batches_are_the_same_wherever_a_run_begins(place: Path) -> None:
    wanted = small(place)
    sets = [ImageSet.load(place / n, short_side=20) for n in ("content", "style")]
    one, two = (Batches(*sets, wanted, torch.device("cpu")) for _ in range(2))
    forward = [one(i, 0) for i in range(7)]
    for i in reversed(range(7)):
        content, style, directions = two(i, 0)
        assert torch.equal(content, forward[i][0])
        assert torch.equal(style, forward[i][1])
        assert all(torch.equal(a, b) for a, b in zip(directions, forward[i][2], strict=True))
    assert [d.shape for d in directions] == [(128, 256), (128, 512)]
    contents = torch.stack([f[0] for f in forward])
    assert len(contents.unique(dim=0)) == 7
    assert not torch.equal(one(0, 1)[0], forward[0][0])  # another phase
    assert not torch.equal(Batches(*sets, dataclasses.replace(wanted, seed=1), torch.device("cpu"))(0, 0)[0], forward[0][0])


def test_processes_share_the_batch_of_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = small(place, batch=4)
    sets = [ImageSet.load(place / n, short_side=20) for n in ("content", "style")]
    whole = Batches(*sets, wanted, torch.device("cpu"))(5, 0)
    shares = []
    for rank in range(2):
        monkeypatch.setattr(training, "processes", lambda rank=rank: (rank, 2))
        shares.append(Batches(*sets, wanted, torch.device("cpu"))(5, 0))
    for place_of in (0, 1):
        assert torch.equal(torch.cat([s[place_of] for s in shares]), whole[place_of])
    assert all(torch.equal(s[2][1], whole[2][1]) for s in shares)
    with pytest.raises(ValueError, match="a batch of 3 cannot be shared equally by 2 processes"):
        Batches(*sets, small(place, batch=3), torch.device("cpu"))


# --- stopping and going on ---------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="has a run already; resume it, or choose another folder"):
        train(settings(place, iterations=1), tmp_path / "run")


@pytest.mark.parametrize("whole", ["small"], indirect=True)
def test_ctrl_c_in_the_middle_of_a_step_loses_nothing(
    whole: tuple[Settings, StyleNetwork, Watch, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, expected, watch, _ = whole
    update, count = torch.optim.AdamW.step, iter(range(100))

    def interrupted(self: torch.optim.AdamW) -> None:
        if next(count) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(wanted, tmp_path / "run", log_every=1)
    after = Watch()
    found = train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert {k: watch.losses[k] for k in after.losses} == after.losses
    assert list(after.losses) == [("style", 3)]
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


# --- what can be wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "efmd"}, "method='efmd' is not one of .*did you mean 'efdm'?"),
        ({"schedule": "cosin"}, "did you mean 'cosine'?"),
        ({"precision": "fp8"}, "precision='fp8' is not one of"),
        ({"speed": "fast"}, "speed='fast' is not one of"),
        ({"content": "nowhere"}, "nowhere"),
        ({"vgg": "nowhere.pth"}, r"there is no file nowhere\.pth with the weights of vgg16"),
        ({"start": "nowhere.pth"}, r"there is no file nowhere\.pth"),
        ({"size": 64}, "crops of 64 pixels do not fit pictures of 20; lower --size or raise --short-side"),
    ],
)
def test_wrong_settings_are_told_and_leave_nothing(
    place: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train(settings(place, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_that_does_not_exist_is_told(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'vgg13' is not a network; choose one of"):
        train(dataclasses.replace(settings(place), encoder="vgg13"), tmp_path / "run")


def test_a_batch_with_nothing_to_learn_is_told(place: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every content is its own style and none is learnt"):
        train(small(place, batch=1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_picture_that_can_be_read(place: Path, tmp_path: Path) -> None:
    (tmp_path / "style").mkdir()
    (tmp_path / "style" / "torn.png").write_bytes(b"PNG")
    with pytest.raises(PictureError, match="none of 1 pictures could be read"):
        train(settings(place, style=str(tmp_path / "style")), tmp_path / "run")


def test_a_loss_that_explodes_stops_the_run(place: Path, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="try a lower --lr"):
        train(settings(place, lr=1e30, iterations=5), tmp_path / "run", log_every=1)


def test_weights_that_explode_between_two_lines_of_the_log_are_not_saved(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, count = torch.optim.AdamW.step, iter(range(100))

    def exploding(self: torch.optim.AdamW) -> None:
        update(self)
        if next(count) == 2:
            self.param_groups[0]["params"][0].data[0] = torch.nan

    monkeypatch.setattr(torch.optim.AdamW, "step", exploding)
    with pytest.raises(FloatingPointError, match=r"no longer finite at iteration 3 of style.*try a lower --lr"):
        train(settings(place, iterations=5), tmp_path / "run", log_every=1000, save_every=1)
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["iteration"] == 2
    assert all(v.isfinite().all() for v in state["network"].values())
