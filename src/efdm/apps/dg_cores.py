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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as processes

from efdm.apps.dg_open import EXPECTED
from efdm.data.domains import DomainSet
from efdm.dg import Progress, Settings, train_together

SMALL = 64  # pixels: smaller pictures gain nothing from a second thread
PATIENCE = 1.0  # seconds without news, after which one looks whether the processes are alive


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(side: int, lanes: int = 1) -> None:
    """As many as pay for pictures of a size. On a busy machine, threads that wait for each other cost many times as much."""
    torch.set_num_threads(1 if side <= SMALL else max(1, torch.get_num_threads() // lanes))


def train_on_cores(
    runs: Sequence[Settings], data: DomainSet, folder: Path, *, lanes: int, progress: Callable[[Progress], None]
) -> None:
    """Leave every training in its folder, as `train_together` does, which then only reads them.

    Ctrl-C is passed on: each process saves what it has. Of a training whose loss explodes nothing is said: it is not
    there, and `train_together` will come to the same point.
    """
    context = processes.get_context("spawn")  # a fork would inherit threads that are not there
    news = context.Queue()
    lanes = min(lanes, len(runs))
    workers = [
        context.Process(target=_work, args=(list(runs[k::lanes]), data, folder, lanes, news)) for k in range(lanes)
    ]  # fmt: skip
    try:
        with _deaf():
            for worker in workers:
                worker.start()
        _listen(workers, news, progress)
    except BaseException:
        while alive := [worker for worker in workers if worker.is_alive()]:
            for pid in (worker.pid for worker in alive if worker.pid is not None):
                os.kill(pid, signal.SIGINT)  # again and again: one that is still importing does not hear it
            alive[0].join(PATIENCE)
        raise
    for worker in workers:
        worker.join()


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C is not heard, and processes that begin here do not hear it until they are ready to save their work."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _listen(workers: Sequence[Any], news: Any, progress: Callable[[Progress], None]) -> None:
    at_work = len(workers)
    while at_work:
        try:
            told = news.get(timeout=PATIENCE)
        except queue.Empty:
            if lost := [w.exitcode for w in workers if w.exitcode]:
                raise OSError(
                    f"a training process ended with code {lost[0]}, perhaps for want of memory; try fewer --lanes"
                ) from None
            continue
        if isinstance(told, Exception):
            raise told
        if told is None:
            at_work -= 1
        else:
            progress(told)


def _work(runs: list[Settings], data: DomainSet, folder: Path, lanes: int, news: Any) -> None:
    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the saving
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, once)
        use_threads(data.images.shape[-1], lanes)
        with suppress(FloatingPointError):  # all others are finished; it is told by who tries it again, see `go`
            train_together(runs, data, folder, progress=news.put)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to save
        news.put(None)
    except KeyboardInterrupt:
        news.cancel_join_thread()  # nobody listens any more
    except EXPECTED as error:
        news.put(ValueError(str(error)))  # of a kind that can be sent
    except Exception:
        news.put(RuntimeError(traceback.format_exc()))
