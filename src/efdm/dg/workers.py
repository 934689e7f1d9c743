"""Trainings side by side on a CPU: each in a process of its own.

A small network keeps one core busy and gains little from a second; two of them on two cores take half the time. (On a GPU,
`train_together` does the same inside one process.)
"""

from __future__ import annotations

import os
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as processes

from efdm.data.domains import DomainSet
from efdm.dg import Progress, Settings, Trained, identity
from efdm.dg.run import training
from efdm.dg.training import raise_exploded, train_together
from efdm.training.interrupt import stoppable
from efdm.training.lanes import finish, side_by_side

SMALL = 64  # pixels: smaller pictures gain nothing from a second thread
PATIENCE = 1.0  # seconds without news, after which one looks whether the processes are alive


def available_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(side: int, lanes: int = 1) -> None:
    """As many as pay for pictures of a size. On a busy machine, threads that wait for each other cost many times as much."""
    torch.set_num_threads(1 if side <= SMALL else max(1, torch.get_num_threads() // lanes))


def train_runs(
    runs: Sequence[Settings],
    data: DomainSet,
    folder: Path,
    *,
    lanes: int,
    progress: Callable[[Progress], None],
    finished: Callable[[Trained], None],
) -> None:
    """Train ``lanes`` runs at a time: on one GPU in this process, on a CPU in one process each."""
    on_cpu = bool(runs) and torch.device(runs[0].device).type == "cpu"
    if on_cpu:
        set_threads(data.images.shape[-1])
    train = train_in_processes if on_cpu and lanes > 1 else train_together
    train(runs, data, folder, lanes=lanes, progress=progress, finished=finished)


def train_in_processes(
    runs: Sequence[Settings],
    data: DomainSet,
    folder: Path,
    *,
    lanes: int,
    progress: Callable[[Progress], None],
    finished: Callable[[Trained], None],
) -> None:
    """`train_together`, but in ``lanes`` processes; for runs that were checked, each there once.

    Ctrl-C and SIGTERM are passed on: each process saves what it has.
    """
    context = processes.get_context("spawn")  # a fork would inherit threads that are not there
    news = context.Queue()
    lanes = min(lanes, len(runs))
    workers = [
        context.Process(target=_work, args=(list(runs[k::lanes]), data, folder, lanes, news)) for k in range(lanes)
    ]  # fmt: skip
    by_name = {identity(settings): settings for settings in runs}

    def read(name: str) -> None:
        finished(finish(training(by_name[name], data, folder / name, lanes=lanes, progress=progress)))

    with stoppable():
        try:
            with _deaf():
                for worker in workers:
                    worker.start()
            exploded = _listen(workers, news, progress, read)
        except BaseException:
            while alive := [worker for worker in workers if worker.is_alive()]:
                for pid in (worker.pid for worker in alive if worker.pid is not None):
                    os.kill(pid, signal.SIGINT)  # again and again: one that is still importing does not hear it
                alive[0].join(PATIENCE)
            raise
        for worker in workers:
            worker.join()
    raise_exploded(exploded, len(runs))


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C is not heard, and processes that begin here do not hear it until they are ready to save their work."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _listen(
    workers: Sequence[Any], news: Any, progress: Callable[[Progress], None], finished: Callable[[str], None]
) -> list[str]:
    """Until all have ended. Gives what is said of trainings that exploded; any other error stops all of them."""
    at_work, exploded = len(workers), list[str]()
    while at_work:
        try:
            told = news.get(timeout=PATIENCE)
        except queue.Empty:
            if lost := [w.exitcode for w in workers if w.exitcode]:
                raise OSError(
                    f"a training process ended with code {lost[0]}, perhaps for want of memory; try fewer --lanes"
                ) from None
            continue
        if isinstance(told, FloatingPointError):
            exploded.append(str(told))
        elif isinstance(told, Exception):
            raise told
        elif told is None:
            at_work -= 1
        elif isinstance(told, str):
            finished(told)
        else:
            progress(told)
    return exploded


def _work(runs: list[Settings], data: DomainSet, folder: Path, lanes: int, news: Any) -> None:
    """Sends news: of steps, the name of each training that is finished, and at the end None or an error."""

    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the saving
        raise KeyboardInterrupt

    end: Exception | None = None
    try:
        signal.signal(signal.SIGINT, once)
        set_threads(data.images.shape[-1], lanes)
        for settings in runs:
            _train(settings, data, folder / identity(settings), lanes, news)
    except KeyboardInterrupt:
        news.cancel_join_thread()  # nobody listens any more
        return
    except (ValueError, TypeError, OSError, ImportError) as error:
        end = ValueError(str(error))  # of a kind that can be sent
    except Exception:
        end = RuntimeError(traceback.format_exc())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to save
    news.put(end)


def _train(settings: Settings, data: DomainSet, folder: Path, lanes: int, news: Any) -> None:
    work = training(settings, data, folder, lanes=lanes, progress=news.put)  # lanes: for the records
    try:
        side_by_side([work], device=torch.device("cpu"), lanes=1, finished=lambda _: news.put(folder.name))
    except FloatingPointError as error:  # the others go on
        news.put(FloatingPointError(str(error)))
