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
from efdm.lab import read_study


@pytest.mark.slow
def test_trainings_in_several_processes_are_the_same_trainings(recipe: Path, pictures: Path, tmp_path: Path) -> None:
    """Also where two rows are one training."""
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


def at_work(runs: list[Settings], pictures: Path, folder: Path, news: Any) -> None:
    workers._work(runs, load_domains(pictures, size=16), folder, 2, news)


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was done at a Ctrl-C, one after the other; it stays as it is."""
    handlers: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.append(handler))
    return handlers


def test_what_fails_in_another_process_is_told_in_this_one(pictures: Path, tmp_path: Path, signals: list[Any]) -> None:
    news = Queue[Any]()
    at_work([settings(batch=500)], pictures, tmp_path, news)
    with pytest.raises(ValueError, match="do not fill one batch of 500"):
        workers._listen([None], news, lambda _: None, lambda _: None)


@pytest.mark.parametrize("error", [None, ValueError("x"), ZeroDivisionError("x")], ids=["none", "expected", "another"])
def test_when_a_process_says_its_last_word_ctrl_c_is_ignored(
    pictures: Path, tmp_path: Path, signals: list[Any], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """It would be heard on the way out and leave a traceback."""

    class News(Queue[Any]):
        def put(self, told: Any, *_: Any) -> None:
            assert signals[-1] is signal.SIG_IGN
            super().put(told)

    def training(*_: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(workers, "_train", training)
    news = News()
    at_work([settings()], pictures, tmp_path, news)
    assert isinstance(news.get_nowait(), type(None) if error is None else (ValueError, RuntimeError))


def test_what_explodes_in_another_process_does_not_stop_the_rest(pictures: Path, tmp_path: Path, signals: list[Any]) -> None:
    news, told, finished = Queue[Any](), list[Any](), list[str]()
    runs = [settings(lr=lr, seed=seed) for seed, lr in enumerate((1e30, 0.1))]
    at_work(runs, pictures, tmp_path, news)
    (exploded,) = workers._listen([None], news, told.append, finished.append)
    assert "the loss is" in exploded
    assert {p.settings.seed for p in told if p.iteration == 3} == {1}
    assert [(tmp_path / identity(one) / "done").exists() for one in runs] == [False, True]
    assert finished == [identity(runs[1])]


@pytest.mark.slow
def test_every_training_is_told_of_when_it_is_finished_and_what_exploded_at_the_end(pictures: Path, tmp_path: Path) -> None:
    runs = [settings(lr=lr, seed=seed) for seed, lr in enumerate((1e30, 0.1, 0.1))]
    trained: list[Any] = []
    with pytest.raises(FloatingPointError, match="1 of 3 runs came to no end, all others did: the loss is"):
        workers.train_in_processes(
            runs, load_domains(pictures, size=16), tmp_path, lanes=2, progress=lambda _: None, finished=trained.append
        )
    assert sorted(t.settings.seed for t in trained) == [1, 2]
    assert {r["lanes"] for t in trained for r in t.records} == {2}


@pytest.mark.parametrize(
    ("side", "lanes", "threads"), [(32, 1, 1), (224, 1, 6), (224, 2, 3), (224, 9, 1)], ids=["small", "one", "two", "many"]
)
def test_threads_are_shared_and_small_pictures_take_one(
    monkeypatch: pytest.MonkeyPatch, side: int, lanes: int, threads: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    workers.set_threads(side, lanes)
    assert seen == [threads]


def test_a_process_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        exitcode = -9

    monkeypatch.setattr(workers, "PATIENCE", 0.01)
    with pytest.raises(OSError, match=r"code -9.*--lanes"):
        workers._listen([Lost()], Queue(), lambda _: None, lambda _: None)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_stops_all_processes_and_each_saves_its_work(tmp_path: Path) -> None:
    """To all of them, as a terminal does, and twice, as people do."""
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "efdm.apps.cli", "dg", "demo", "-o", tmp_path / "demo", "--iterations", "100000"]
    started = subprocess.Popen(
        [*map(str, command), "--lanes", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    until = time.monotonic() + 120
    while len([p for p in (tmp_path / "demo" / "runs").glob("*/log.jsonl") if p.stat().st_size]) < 2:
        assert started.poll() is None
        assert time.monotonic() < until
        time.sleep(0.2)
    os.killpg(started.pid, signal.SIGINT)
    told, _ = started.communicate(timeout=60)
    assert started.returncode == 130, told
    assert "interrupted; repeat the command" in told
    assert "Traceback" not in told
    assert len(list((tmp_path / "demo" / "runs").glob("*/checkpoint.pt"))) == 2
