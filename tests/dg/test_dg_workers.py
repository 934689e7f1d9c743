import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dg_runs import settings
from runs import without_clock

from efdm.data.domains import DomainSet
from efdm.dg import Settings, Trained, identity, train
from efdm.dg.training import ClassifierTask
from efdm.errors import DamagedFileError, DivergedError, RunFolderError, SettingError
from efdm.progress import Progress, ignore
from efdm.recognition import workers


def runs(*rates: float, **changes: Any) -> list[Settings]:
    return [settings(lr=lr, seed=seed, iterations=3, evaluate_every=0, **changes) for seed, lr in enumerate(rates)]


def work(wanted: list[Settings], data: DomainSet, folder: Path, stop: Any) -> list[Any]:
    """Run a worker in this process and return its messages."""
    messages = Queue[Any]()
    messages.cancel_join_thread = lambda: None  # type: ignore[attr-defined]
    workers._run_worker(ClassifierTask, wanted, data, folder, 2, messages, stop)
    return list(messages.queue)


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    found = SimpleNamespace(is_alive=lambda: True)
    monkeypatch.setattr(workers.multiprocessing, "parent_process", lambda: found)
    return found


@pytest.mark.parametrize("cause", ["stopped", "killed parent"])
def test_a_stopped_worker_saves_its_run(data: DomainSet, tmp_path: Path, parent: SimpleNamespace, cause: str) -> None:
    wanted, answers = runs(0.1, 0.1), iter([False, False, True])  # at the third yield, after the first step
    stop = SimpleNamespace(is_set=lambda: cause == "stopped" and next(answers))
    parent.is_alive = lambda: cause == "stopped" or not next(answers)
    work(wanted, data, tmp_path, stop)
    assert [path.name for path in tmp_path.iterdir()] == [identity(wanted[0])]  # the second run is not started
    assert torch.load(tmp_path / identity(wanted[0]) / "checkpoint.pt", weights_only=True)["iteration"] == 1


@pytest.mark.parametrize("error", [ValueError("x"), ZeroDivisionError("x")], ids=["expected", "unexpected"])
def test_an_error_in_a_worker_is_raised_in_the_parent(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parent: SimpleNamespace, error: Exception
) -> None:
    def steps(*_: object, **__: object) -> Any:
        raise error
        yield

    monkeypatch.setattr(ClassifierTask, "train_steps", steps)
    messages = Queue[Any]()
    for message in work(runs(0.1), data, tmp_path, Event()):
        messages.put(message)
    expected = ValueError if isinstance(error, ValueError) else RuntimeError  # with the traceback of the worker
    with pytest.raises(expected, match="x"):
        workers._listen([None], messages, ignore, lambda _: None)


@pytest.mark.slow
def test_runs_in_another_process_equal_runs_in_this_one(data: DomainSet, tmp_path: Path) -> None:
    wanted, reports, trained = runs(1e30, 0.1, 0.1), list[Progress](), list[Trained]()
    with pytest.raises(DivergedError, match=r"1 of 3 runs diverged.* seed 0"):
        workers.train_in_processes(
            ClassifierTask, wanted, data, tmp_path, lanes=1, progress=reports.append, finished=trained.append
        )
    assert [t.settings.seed for t in trained] == [1, 2]
    assert any(report.done == 3 and "seed 1" in report.label for report in reports)
    assert [(tmp_path / identity(one) / "done").exists() for one in wanted] == [False, True, True]
    for found in trained:
        assert without_clock(found.records) == without_clock(train(found.settings, data).records)


@pytest.mark.parametrize(
    ("side", "lanes", "threads"), [(32, 1, 1), (224, 1, 6), (224, 2, 3), (224, 9, 1)], ids=["small", "one", "two", "many"]
)
def test_lanes_share_the_threads_and_small_images_use_one(
    monkeypatch: pytest.MonkeyPatch, side: int, lanes: int, threads: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    workers.set_threads(settings(size=side), lanes)
    assert seen == [threads]


def test_a_killed_worker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        exitcode = -9

    monkeypatch.setattr(workers, "POLL", 0.01)
    with pytest.raises(OSError, match=r"exit code -9.*fewer lanes"):
        workers._listen([Lost()], Queue(), ignore, lambda _: None)


@pytest.mark.parametrize(
    "error",
    [
        SettingError("bad", "lr"), DamagedFileError("a.pt", "torn", "delete it"), RunFolderError("no", "run", "busy"),
        DivergedError("nan", 7),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_errors_keep_their_fields_between_processes(error: Exception) -> None:
    import pickle

    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), vars(found)) == (str(error), vars(error))


# Imports are guarded because every worker runs the file again, up to the guard.
SWEEP = """
if __name__ == "__main__":
    import sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from dg_runs import settings, small_digits
    from efdm.dg.training import ClassifierTask
    from efdm.recognition.workers import train_runs
    runs = [settings(seed=seed, iterations=10**6, log_every=10, evaluate_every=0, save_every=0) for seed in range(2)]
    train_runs(ClassifierTask, runs, small_digits(60), Path(sys.argv[1]), lanes=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("cause", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_processes_and_each_saves_its_run(tmp_path: Path, cause: signal.Signals) -> None:
    """The whole process group gets the signal, as from a terminal or a scheduler."""
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    started = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs"), str(Path(__file__).parents[1])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while len([p for p in (tmp_path / "runs").glob("*/log.jsonl") if p.stat().st_size]) < 2:
        assert started.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    os.killpg(started.pid, cause)
    output, _ = started.communicate(timeout=60)
    assert started.returncode != 0
    assert output.count("Traceback") <= 1  # of the parent
    assert len(list((tmp_path / "runs").glob("*/checkpoint.pt"))) == 2
