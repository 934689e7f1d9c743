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
    messages, lanes = context.Queue(), min(lanes, len(runs))
    shares = [list(runs[lane::lanes]) for lane in range(lanes)]
    workers = [context.Process(target=_run_worker, args=(task, share, data, folder, lanes, messages)) for share in shares]
    by_name = {identity(settings): settings for settings in runs}

    def load(name: str) -> None:
        finished(finish(task.train_steps(by_name[name], data, folder / name)))

    with stoppable():
        try:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: a worker that is importing ignores Ctrl-C
            try:
                for worker in workers:
                    worker.start()
            finally:
                signal.signal(signal.SIGINT, before)
            diverged = _listen(workers, messages, progress, load)
        except BaseException:
            while alive := [worker for worker in workers if worker.is_alive()]:
                for pid in (worker.pid for worker in alive if worker.pid is not None):
                    os.kill(pid, signal.SIGINT)  # repeatedly, because a worker that is importing ignores it
                alive[0].join(POLL)
            raise
        for worker in workers:
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


def _run_worker(task: Any, runs: Sequence[RecognitionSettings], data: Any, folder: Path, lanes: int, messages: Any) -> None:
    """Train runs one after the other and send messages to the parent.

    Messages are progress reports, the name or the DivergedError of each finished run, and finally None or an error.
    """

    def interrupt(*_: object) -> None:
        _handle_stops(signal.SIG_IGN)  # a second Ctrl-C must not interrupt saving
        raise KeyboardInterrupt

    def report(message: object) -> None:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():  # the parent was killed and cannot forward Ctrl-C
            raise KeyboardInterrupt
        messages.put(message)

    last: Exception | None = None
    try:
        _handle_stops(interrupt)  # SIGTERM as well: schedulers send it to all processes
        set_threads(runs[0], lanes)
        for settings in runs:
            name = identity(settings)
            try:
                with closing(task.train_steps(settings, data, folder / name, lanes=lanes, progress=report)) as run:
                    finish(run)
                messages.put(name)
            except DivergedError as error:
                messages.put(error)
    except KeyboardInterrupt:
        messages.cancel_join_thread()  # the parent has stopped reading messages
        raise SystemExit(1) from None
    except (ValueError, TypeError, OSError, ImportError) as error:
        last = error
    except Exception:
        last = RuntimeError(traceback.format_exc())
    _handle_stops(signal.SIG_IGN)  # nothing is left to save
    messages.put(last)


def _handle_stops(handler: Any) -> None:
    for number in STOPS:
        signal.signal(number, handler)
