from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from style_runs import Watch, records, settings, small, weights
from training import noise_pictures, train

from efdm.errors import RunFolderError
from efdm.models import StyleNetwork
from efdm.models.weights import read
from efdm.style.settings import Settings

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.fixture(scope="module", params=["small", "vgg16"])
def whole(request: pytest.FixtureRequest, place: Path) -> tuple[Settings, StyleNetwork, Watch, Path]:
    """Return settings, result, losses and folder of an uninterrupted run."""
    wanted, watch, run = {"small": small, "vgg16": settings}[request.param](place), Watch(), place / request.param
    return wanted, train(wanted, run, log_every=1, preview_every=0, progress=watch), watch, run


@pytest.mark.parametrize("stop", [("reconstruct", 1), ("reconstruct", 3), ("style", 2)])
def test_a_resumed_run_equals_an_uninterrupted_one(
    whole: tuple[Settings, StyleNetwork, Watch, Path], tmp_path: Path, stop: tuple[str, int]
) -> None:
    wanted, expected, watch, run = whole
    if stop not in watch.losses:
        pytest.skip("the decoder of a VGG has one phase")
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


def test_a_run_without_a_checkpoint_starts_again(place: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        train(settings(place), tmp_path / "run", log_every=1, progress=Watch("style", 2, RuntimeError))
    with pytest.raises(ValueError, match=r"no checkpoint\.pt"):
        train(settings(place), tmp_path / "run", resume=True)
    train(settings(place), tmp_path / "run", log_every=1)
    assert [r["iteration"] for r in records(tmp_path / "run")] == [1, 2, 3]


def test_a_run_resumes_without_its_initial_network(place: Path, tmp_path: Path) -> None:
    train(small(place, reconstruct=0, iterations=1), tmp_path / "first")
    start = tmp_path / "first" / "network.safetensors"
    wanted = small(place, reconstruct=0, start=str(start))
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, progress=Watch("style", 2))
    start.unlink()
    train(wanted, tmp_path / "run", resume=True)


def test_a_run_is_resumed_only_with_its_settings_and_data(place: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings(place), tmp_path / "run", log_every=1, progress=Watch("style", 1))
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    with pytest.raises(RunFolderError, match=r"iterations=3, not 2, lr=0\.001, not 0\.1"):
        train(settings(place, iterations=2, lr=0.1), tmp_path / "run", resume=True)
    noise_pictures(tmp_path / "other", 4, seed=1)
    (tmp_path / "other" / "0.png").rename(tmp_path / "other" / "another.png")
    with pytest.raises(RunFolderError) as error:
        train(settings(place, content=str(tmp_path / "other")), tmp_path / "run", resume=True)
    assert error.value.problem == "other data"
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before
    (place / "content").rename(tmp_path / "moved")
    try:
        train(settings(place, content=str(tmp_path / "moved"), speed="graph"), tmp_path / "run", resume=True)
    finally:
        (tmp_path / "moved").rename(place / "content")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("whole", ["small", "vgg16"], indirect=True)
@pytest.mark.parametrize("before", ["cpu", "cuda"])
def test_a_run_resumes_on_a_gpu(whole: tuple[Settings, StyleNetwork, Watch, Path], tmp_path: Path, before: str) -> None:
    """Its losses are close to those of the run on a CPU, up to the rounding of sums on a GPU."""
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
    # loose, because each device draws its own directions and the first steps of Adam follow signs
    for place, losses in watch.losses.items():
        assert found[place]["loss"] == pytest.approx(losses["loss"], rel=0.4), place


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("make", [settings, small])
def test_a_captured_run_in_bf16_resumes(place: Path, tmp_path: Path, make: Callable[..., Settings]) -> None:
    wanted = make(place, device="cuda", precision="bf16", speed="graph", iterations=5, lr=1e-4)
    whole, before, after = Watch(), Watch("style", 3), Watch()
    train(wanted, tmp_path / "whole", log_every=1, preview_every=0, progress=whole)
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=before)
    train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert list(after.losses) == [("style", 4), ("style", 5)]
    for place_of, losses in {**before.losses, **after.losses}.items():
        assert losses["loss"] == pytest.approx(whole.losses[place_of]["loss"], rel=0.1), place_of
