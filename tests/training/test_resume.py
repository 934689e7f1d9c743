"""A run of any task that was interrupted, crashed or killed ends like an uninterrupted one."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dg_runs
import pytest
import reid_runs
import style_runs
from dg_runs import small_digits
from runs import Watch, lines, weights, without_clock

from efdm.dg import train as train_dg
from efdm.errors import RunFolderError
from efdm.progress import Progress
from efdm.reid import train as train_reid
from efdm.style.training import train as train_style
from efdm.training.settings import TrainSettings

pytestmark = pytest.mark.usefixtures("quickly", "narrow_vgg")


@dataclasses.dataclass(frozen=True)
class Case:
    """A run of six iterations in all, with every source of random numbers."""

    train: Callable[..., Any]  # of settings, data and folder
    settings: TrainSettings
    data: Any
    same: Any  # accepted instead of the data
    others: tuple[Any, ...]  # refused
    quiet: dict[str, int]  # no evaluation before the end
    saved: int = 2  # iterations in the last checkpoint before the fourth; phases end with one


def dg(style_data: Path, method: str = "efdmix") -> Case:
    data = small_digits(60)
    renamed = dataclasses.replace(data, names=[f"other {name}" for name in data.names])
    return Case(train_dg, dg_runs.settings(method=method), data, data, (small_digits(70), renamed), {"evaluate_every": 0})


def reid(style_data: Path) -> Case:
    seen, other = reid_runs.seen_by_cameras(), reid_runs.seen_by_cameras(9, 2, name="other", seed=1)
    settings = reid_runs.settings(method="efdmix", augmentation=("flip", "crop", "jitter", "erase"))
    others = ({"seen": reid_runs.seen_by_cameras(19)},)
    return Case(train_reid, settings, {"seen": seen, "other": other}, {"seen": seen}, others, {"evaluate_every": 0})


def style(style_data: Path) -> Case:
    """Two phases of three iterations each; data are the folder of contents."""
    data = style_data / "content"
    moved, renamed = style_data / "moved", style_data / "renamed"
    for copy in (moved, renamed):
        shutil.copytree(data, copy, dirs_exist_ok=True)
    (renamed / "0.png").rename(renamed / "another.png")

    def train(settings: Any, content: Path, folder: Path, **options: Any) -> Any:
        return train_style(dataclasses.replace(settings, content=str(content)), folder, **options)

    settings = style_runs.small(style_data, log_every=1, save_every=2, preview_every=2)
    return Case(train, settings, data, moved, (renamed,), {"preview_every": 0}, saved=3)


CASES = {"dg": dg, "dg mixup": lambda style_data: dg(style_data, "mixup"), "reid": reid, "style": style}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, style_data: Path) -> Case:
    return CASES[request.param](style_data)


@dataclasses.dataclass(frozen=True)
class Whole:
    losses: dict[tuple[str, int], float]
    result: dict[str, Any]


@pytest.fixture(scope="module")
def whole(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return the losses and the result of an uninterrupted run."""
    folder, watch = tmp_path_factory.mktemp("whole"), Watch()
    result = result_of(case.train(case.settings, case.data, folder, progress=watch), folder)
    assert len(watch.losses) == 6
    return Whole(watch.losses, result)


def result_of(trained: Any, folder: Path) -> dict[str, Any]:
    """Return the weights, the names of all files, and the log and records without times."""
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    logs = {path.name: without_clock(lines(path)) for path in folder.glob("*.jsonl")}
    return {"weights": weights(trained).tolist(), "files": files, **logs}


class Report(Watch):
    """Call ``action`` at one of six reports, counted over all phases."""

    def __init__(self, at: int = 0, action: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.at, self.action = at, action

    def __call__(self, progress: Progress) -> None:
        super().__call__(progress)
        if len(self.losses) == self.at:
            self.action()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 3, 5])
def test_an_interrupted_run_repeats_nothing(case: Case, whole: Whole, tmp_path: Path, at: int) -> None:
    """Before or at an evaluation, inside a block of batches, and at the end of a phase."""
    before, after = Report(at, interrupt), Watch()
    with pytest.raises(KeyboardInterrupt):
        case.train(case.settings, case.data, tmp_path, progress=before)
    assert not (tmp_path / "done").exists()
    found = case.train(case.settings, case.data, tmp_path, progress=after, resume=True)
    assert not set(before.losses) & set(after.losses)
    assert {**before.losses, **after.losses} == whole.losses
    assert result_of(found, tmp_path) == whole.result


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_run_resumes_from_its_last_checkpoint(case: Case, whole: Whole, tmp_path: Path) -> None:
    if (child := os.fork()) == 0:
        die = Report(4, lambda: os.kill(os.getpid(), signal.SIGKILL))
        case.train(case.settings, case.data, tmp_path, progress=die)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    after = Watch()
    found = case.train(case.settings, case.data, tmp_path, resume=True, progress=after)
    assert list(after.losses.items()) == list(whole.losses.items())[case.saved :]
    assert result_of(found, tmp_path) == whole.result


def test_evaluations_checkpoints_and_logs_change_nothing(case: Case, whole: Whole, tmp_path: Path) -> None:
    quiet: Any = dataclasses.replace(case.settings, log_every=100, save_every=0, **case.quiet)
    assert weights(case.train(quiet, case.data, tmp_path)).tolist() == whole.result["weights"]


@pytest.mark.parametrize("case", [name for name in CASES if name != "dg mixup"], indirect=True)
def test_a_run_is_resumed_only_with_its_settings_and_data(case: Case, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        case.train(case.settings, case.data, tmp_path, progress=Watch(2))
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(RunFolderError, match=r"lr=0\.\d+, not 0\.7"):
        case.train(dataclasses.replace(case.settings, lr=0.7), case.data, tmp_path, resume=True)
    for other in case.others:
        with pytest.raises(RunFolderError) as error:
            case.train(case.settings, other, tmp_path, resume=True)
        assert error.value.problem == "other data"
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    case.train(dataclasses.replace(case.settings, log_every=3, speed="graph"), case.same, tmp_path, resume=True)
    with pytest.raises(RunFolderError, match="finished run"):
        case.train(case.settings, case.data, tmp_path, resume=True)
