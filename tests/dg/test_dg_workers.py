import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
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


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the handlers that a worker sets for Ctrl-C, without setting them."""
    found: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: found.append(handler))
    return found


def work(wanted: list[Settings], data: DomainSet, folder: Path) -> Queue[Any]:
    messages = Queue[Any]()
    workers._run_worker(ClassifierTask, wanted, data, folder, 2, messages)
    return messages


def test_an_error_in_a_worker_is_raised_in_the_parent(data: DomainSet, tmp_path: Path, handlers: list[Any]) -> None:
    messages = work(runs(0.1, batch=500), data, tmp_path)
    with pytest.raises(ValueError, match="500"):
        workers._listen([None], messages, ignore, lambda _: None)


class Messages(Queue[Any]):
    """A queue between processes that calls ``stop`` at the first progress report."""

    stop = staticmethod(lambda: None)

    def put(self, message: Any, *_: Any) -> None:
        self.stop()

    def cancel_join_thread(self) -> None:
        pass


@pytest.mark.parametrize("cause", [signal.SIGINT, signal.SIGTERM, "killed parent"])
def test_a_stopped_worker_saves_its_run(
    data: DomainSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: signal.Signals | str
) -> None:
    before = {number: signal.getsignal(number) for number in workers.STOPS}
    if isinstance(cause, signal.Signals):
        monkeypatch.setattr(Messages, "stop", staticmethod(lambda: signal.raise_signal(cause)))
    else:
        monkeypatch.setattr(workers.multiprocessing, "parent_process", lambda: SimpleNamespace(is_alive=lambda: False))
    (wanted,) = runs(0.1, log_every=1)
    try:
        with pytest.raises(SystemExit) as end:
            workers._run_worker(ClassifierTask, [wanted], data, tmp_path, 1, Messages())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert end.value.code == 1
    assert torch.load(tmp_path / identity(wanted) / "checkpoint.pt", weights_only=True)["iteration"] == 1


@pytest.mark.parametrize("error", [None, ValueError("x"), ZeroDivisionError("x")], ids=["none", "expected", "unexpected"])
def test_a_worker_ignores_ctrl_c_while_it_sends_its_last_message(
    data: DomainSet, tmp_path: Path, handlers: list[Any], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Otherwise Ctrl-C would print a traceback."""

    def steps(*_: object, **__: object) -> Any:
        if error is not None:
            raise error
        yield

    monkeypatch.setattr(ClassifierTask, "train_steps", steps)
    *_, last = work(runs(0.1), data, tmp_path).queue
    assert isinstance(last, type(None) if error is None else (ValueError, RuntimeError))
    assert handlers[-1] is signal.SIG_IGN


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
def test_ctrl_c_stops_all_processes_and_each_saves_its_run(tmp_path: Path) -> None:
    """The whole process group gets the signal, as from a terminal."""
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
    os.killpg(started.pid, signal.SIGINT)
    output, _ = started.communicate(timeout=60)
    assert started.returncode != 0
    assert output.count("Traceback") <= 1  # of the parent
    assert len(list((tmp_path / "runs").glob("*/checkpoint.pt"))) == 2
