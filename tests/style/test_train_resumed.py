"""Interrupted runs that resume on a GPU. `tests/training/test_resume.py` has those on a CPU."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import Watch
from style_runs import settings, small
from training import train

from efdm.style.settings import Settings

pytestmark = pytest.mark.usefixtures("quickly")


@pytest.mark.gpu
@pytest.mark.parametrize("make", [settings, small])
@pytest.mark.parametrize("before", ["cpu", "cuda"])
def test_a_run_resumes_on_a_gpu(style_data: Path, tmp_path: Path, make: Callable[..., Settings], before: str) -> None:
    """Its losses are close to those of the run on a CPU, up to the rounding of sums on a GPU."""
    wanted, whole = make(style_data), Watch()
    train(wanted, tmp_path / "whole", log_every=1, preview_every=0, progress=whole)
    speeds = {"cpu": "plain", "cuda": "graph"}
    here, there = (dataclasses.replace(wanted, device=name, speed=speeds[name]) for name in (before, "cuda"))
    first, second = Watch(2, label="style"), Watch()
    with pytest.raises(KeyboardInterrupt):
        train(here, tmp_path / "run", log_every=1, preview_every=0, progress=first)
    train(there, tmp_path / "run", log_every=1, preview_every=0, progress=second, resume=True)
    assert list(second.losses) == [("style", 3)]
    found = {**first.losses, **second.losses}
    assert set(found) == set(whole.losses)
    # loose, because each device draws its own directions and the first steps of Adam follow signs
    assert found == pytest.approx(whole.losses, rel=0.4)


@pytest.mark.gpu
@pytest.mark.parametrize("make", [settings, small])
def test_a_captured_run_in_bf16_resumes(style_data: Path, tmp_path: Path, make: Callable[..., Settings]) -> None:
    wanted = make(style_data, device="cuda", precision="bf16", speed="graph", iterations=5, lr=1e-4)
    whole, before, after = Watch(), Watch(3, label="style"), Watch()
    train(wanted, tmp_path / "whole", log_every=1, preview_every=0, progress=whole)
    with pytest.raises(KeyboardInterrupt):
        train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=before)
    train(wanted, tmp_path / "run", log_every=1, preview_every=0, progress=after, resume=True)
    assert list(after.losses) == [("style", 4), ("style", 5)]
    assert {**before.losses, **after.losses} == pytest.approx(whole.losses, rel=0.1)
