"""Concurrent runs on a CPU, each in its own process.

A small network keeps one core busy and gains little from a second one, so two runs on two cores take half the time. On a
GPU, `RecognitionTask.train_together` runs them in one process.
"""

from __future__ import annotations

import os
import queue
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

from efdm.errors import DivergedError
from efdm.progress import Progress, Report, ignore
from efdm.recognition.pixels import height_and_width
from efdm.recognition.settings import AnySettings, RecognitionSettings, identity
from efdm.recognition.training import Data, RecognitionTask, Trained, raise_diverged
from efdm.training.interrupt import STOPS, stoppable
from efdm.training.lanes import finish

SMALL = 64  # pixels: smaller images gain nothing from a second thread
POLL = 1.0  # seconds without a message after which the workers are checked


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(settings: RecognitionSettings, lanes: int = 1) -> None:
    """Set the number of torch threads of a run on a CPU: 1 for small images, otherwise the lanes share the threads."""
    if _on_cpu(settings):
        small = max(height_and_width(settings.size)) <= SMALL
        torch.set_num_threads(1 if small else max(1, torch.get_num_threads() // lanes))


def _on_cpu(settings: RecognitionSettings) -> bool:
    return torch.device(settings.device).type == "cpu"


def train_runs(
    task: type[RecognitionTask[AnySettings, Data, Trained]],
    runs: Sequence[AnySettings],
    data: Data,
    folder: Path,
    *,
    lanes: int,
    progress: Report = ignore,
    finished: Callable[[Trained], None] = lambda _: None,
) -> None:
    """Train ``lanes`` runs at a time: on one GPU in this process, on a CPU in one process each."""
    set_threads(runs[0])
    train = partial(train_in_processes, task) if lanes > 1 and _on_cpu(runs[0]) else task.train_together
    train(runs, data, folder, lanes=lanes, progress=progress, finished=finished)


def train_in_processes(
    task: type[RecognitionTask[AnySettings, Data, Trained]],
    runs: Sequence[AnySettings],
    data: Data,
    folder: Path,
    *,
    lanes: int,
    progress: Report,
    finished: Callable[[Trained], None],
) -> None:
    """Train runs as `train_together` does, in ``lanes`` processes. The runs must be resolved, checked and distinct.

    On Ctrl-C and SIGTERM every process saves its run.
    """
    context = multiprocessing.get_context("spawn")  # a forked process would inherit locks of threads it does not have
    messages, stop, lanes = context.Queue(), context.Event(), min(lanes, len(runs))
    shares = [list(runs[lane::lanes]) for lane in range(lanes)]
    arguments = (data, folder, lanes, messages, stop)
    workers = [context.Process(target=_run_worker, args=(task, share, *arguments)) for share in shares]
    by_name = {identity(settings): settings for settings in runs}

    def load(name: str) -> None:
        finished(finish(task.train_steps(by_name[name], data, folder / name)))

    with stoppable():
        try:
            before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}  # workers inherit this
            try:
                for worker in workers:
                    worker.start()
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
            diverged = _listen(workers, messages, progress, load)
        finally:
            stop.set()
            for worker in workers:
                if worker.pid is not None:
                    worker.join()
    raise_diverged(diverged, len(runs))


def _listen(workers: Sequence[Any], messages: Any, progress: Report, finished: Callable[[str], None]) -> list[DivergedError]:
    """Handle messages until every worker has sent None, and return the errors of runs that diverged."""
    working, diverged = len(workers), list[DivergedError]()
    while working:
        try:
            message = messages.get(timeout=POLL)
        except queue.Empty:
            if lost := [worker.exitcode for worker in workers if worker.exitcode]:
                text = f"a worker process ended with exit code {lost[0]}, perhaps for lack of memory; use fewer lanes"
                raise ChildProcessError(text) from None
            continue
        if isinstance(message, Progress):
            progress(message)
        elif isinstance(message, str):
            finished(message)
        elif isinstance(message, DivergedError):
            diverged.append(message)
        elif message is None:
            working -= 1
        else:
            raise message
    return diverged


def _run_worker(
    task: Any, runs: Sequence[RecognitionSettings], data: Any, folder: Path, lanes: int, messages: Any, stop: Any
) -> None:
    """Train runs one after the other and send messages to the parent, until ``stop`` is set.

    Messages are progress reports, the name or the DivergedError of each finished run, and finally None or an error.
    """
    parent: Any = multiprocessing.parent_process()
    last: Exception | None = None
    try:
        set_threads(runs[0], lanes)
        for settings in runs:
            name = identity(settings)
            try:
                with closing(task.train_steps(settings, data, folder / name, lanes=lanes, progress=messages.put)) as steps:
                    for _ in steps:
                        if stop.is_set() or not parent.is_alive():  # a killed parent cannot set it
                            messages.cancel_join_thread()  # nobody reads messages
                            return
                messages.put(name)
            except DivergedError as error:
                messages.put(error)
    except (ValueError, TypeError, OSError, ImportError) as error:
        last = error
    except Exception:
        last = RuntimeError(traceback.format_exc())
    messages.put(last)
