from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from dg_commands import run

from efdm.data.domains import load_domains
from efdm.dg import Settings, identity, workers
from efdm.dg.settings import run_label
from efdm.errors import DivergedError
from efdm.lab import read_study
from efdm.progress import Progress


@pytest.mark.slow
def test_runs_in_several_processes_equal_runs_in_one(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    """Two rows with the same settings are one run."""
    text = recipe.read_text()
    assert '"erm": {}' in text
    recipe.write_text(text.replace('"erm": {}', '"erm": {}, "again": {"method": "erm"}'))
    for lanes in (1, 2):
        part = ("--methods", "erm,again", "--domains", "day,rain", "--seeds", "1", "--lanes", lanes)
        result = run("run", recipe, "--data", pictures, "-o", tmp_path / str(lanes), "--device", "cpu", *part)
        assert result.exit_code == 0, result.output
        assert "2/2" in result.output
    one, two = (read_study(tmp_path / str(lanes)).runs for lanes in (1, 2))
    assert one.keys() == two.keys()
    for name in one:
        assert [(r["loss"], r["val"], r["test"]) for r in one[name]] == [(r["loss"], r["val"], r["test"]) for r in two[name]]
    assert [{r["lanes"] for records in found.values() for r in records} for found in (one, two)] == [{1}, {2}]


def settings(**changes: Any) -> Settings:
    common = {"data": "mine", "train_domains": ("day",), "test_domains": ("rain",), "backbone": "tiny", "size": 16}
    common |= {"batch": 4, "iterations": 3, "device": "cpu", "precision": "fp32", "speed": "plain", "log_every": 1}
    return Settings(**{**common, **changes})  # type: ignore[arg-type]


def work(runs: list[Settings], pictures: Path, folder: Path, messages: Any) -> None:
    """Do the work of a worker process in this one."""
    workers._work(runs, load_domains(pictures, size=16), folder, 2, messages)


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the signal handlers that are set, without setting them."""
    found: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: found.append(handler))
    return found


@pytest.mark.usefixtures("handlers")
def test_an_error_of_a_worker_is_raised_in_the_parent(pictures: Path, tmp_path: Path) -> None:
    messages = Queue[Any]()
    work([settings(batch=500)], pictures, tmp_path, messages)
    with pytest.raises(ValueError, match="500"):
        workers._listen([None], messages, lambda _: None, lambda _: None)


@pytest.mark.parametrize("error", [None, ValueError("x"), ZeroDivisionError("x")], ids=["none", "expected", "unexpected"])
def test_a_worker_ignores_ctrl_c_while_it_sends_its_last_message(
    pictures: Path, tmp_path: Path, handlers: list[Any], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    class Messages(Queue[Any]):
        def put(self, message: Any, *_: Any) -> None:
            assert handlers[-1] is signal.SIG_IGN
            super().put(message)

    def side_by_side(*_: object, **__: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(workers, "side_by_side", side_by_side)
    messages = Messages()
    work([settings()], pictures, tmp_path, messages)
    assert isinstance(messages.get_nowait(), type(None) if error is None else (ValueError, RuntimeError))


@pytest.mark.usefixtures("handlers")
def test_a_diverged_run_does_not_stop_the_other_runs_of_a_worker(pictures: Path, tmp_path: Path) -> None:
    messages, reports, finished = Queue[Any](), list[Progress](), list[str]()
    runs = [settings(lr=lr, seed=seed) for seed, lr in enumerate((1e30, 0.1))]
    work(runs, pictures, tmp_path, messages)
    (diverged,) = workers._listen([None], messages, reports.append, finished.append)
    assert isinstance(diverged, DivergedError)
    assert {report.label for report in reports if report.done == 3} == {run_label(runs[1])}
    assert [(tmp_path / identity(one) / "done").exists() for one in runs] == [False, True]
    assert finished == [identity(runs[1])]


@pytest.mark.slow
def test_diverged_runs_are_raised_after_the_others_have_finished(pictures: Path, tmp_path: Path) -> None:
    runs = [settings(lr=lr, seed=seed) for seed, lr in enumerate((1e30, 0.1, 0.1))]
    trained: list[Any] = []
    with pytest.raises(DivergedError, match="1 of 3 runs"):
        workers.train_in_processes(runs, load_domains(pictures, size=16), tmp_path, lanes=2, finished=trained.append)
    assert sorted(t.settings.seed for t in trained) == [1, 2]
    assert {r["lanes"] for t in trained for r in t.records} == {2}


@pytest.mark.parametrize(
    ("side", "lanes", "threads"), [(32, 1, 1), (224, 1, 6), (224, 2, 3), (224, 9, 1)], ids=["small", "one", "two", "many"]
)
def test_processes_share_the_threads_and_small_pictures_use_one(
    monkeypatch: pytest.MonkeyPatch, side: int, lanes: int, threads: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    workers.set_threads(side, lanes)
    assert seen == [threads]


def test_a_killed_worker_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        exitcode = -9

    monkeypatch.setattr(workers, "POLL", 0.01)
    with pytest.raises(OSError, match=r"-9"):
        workers._listen([Killed()], Queue(), lambda _: None, lambda _: None)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_stops_all_processes_and_each_saves_its_run(tmp_path: Path) -> None:
    """The signal goes to the whole process group, as from a terminal."""
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "efdm.apps.cli", "dg", "demo", "-o", tmp_path / "demo", "--iterations", "100000"]
    process = subprocess.Popen(
        [*map(str, command), "--lanes", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len([p for p in (tmp_path / "demo" / "runs").glob("*/log.jsonl") if p.stat().st_size]) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted; repeat the command" in output
    assert "Traceback" not in output
    assert len(list((tmp_path / "demo" / "runs").glob("*/checkpoint.pt"))) == 2
