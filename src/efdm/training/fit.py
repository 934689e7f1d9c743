"""The training loop. A kind of training is a `Task`; `fit` runs it: steps, log, checkpoints, resuming, signals, lock."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from efdm.environment import environment
from efdm.errors import DamagedFileError, DivergedError, RunFolderError
from efdm.progress import Progress, Report, ignore
from efdm.training.checkpoint import REMEDY, is_finite, read_checkpoint, write_checkpoint
from efdm.training.distributed import mean_losses, processes, wait_for_all
from efdm.training.files import Record, write_json
from efdm.training.folder import CHECKPOINT, DONE, ENVIRONMENT, check_started, lock_folder, remove_torn_files
from efdm.training.interrupt import stoppable, unbroken
from efdm.training.lanes import WAIT, Work, finish
from efdm.training.log import Log
from efdm.training.schedules import SCHEDULES
from efdm.training.settings import FILE, TrainSettings, check_same_run, values_of
from efdm.training.step import Step

SECONDS = 300.0  # maximum time between checkpoints, and so the training that a crash can lose

Result = TypeVar("Result")


class Phase(NamedTuple):
    """A part of a run with its own training step. ``batches(i)`` yields the inputs of iteration ``i`` and those after it."""

    name: str
    iterations: int
    make_step: Callable[[], Step]
    batches: Callable[[int], Iterable[Sequence[Tensor]]]
    start_iteration: int = 0


class Status(NamedTuple):
    """The state of a run, for `Task.evaluate`. ``seconds`` counts training steps only: no set-up, evaluation or files."""

    phase: Phase
    iteration: int
    losses: Mapping[str, float]
    seconds: float
    devices: Sequence[str]


class Task(ABC, Generic[Result]):
    """A kind of training: its phases, data, evaluation and result.

    ``label`` names the run in progress reports and messages; if it is empty, the name of the phase is used.
    """

    settings: TrainSettings
    label: str = ""

    @abstractmethod
    def phases(self) -> Sequence[Phase]:
        """Return the phases in the order in which they are trained."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of the training data. A run is resumed only with the data it was started with."""

    @abstractmethod
    def finish(self) -> Result:
        """Write the result of a finished run and return it."""

    def open(self, iteration: int) -> None:
        """Prepare files in the folder for a run that starts (0) or resumes at an iteration."""

    def environment(self) -> Record:
        """Return the content of ``environment.json``: device, versions, date, and the entries of the task."""
        return environment(self.settings.device)

    def is_due(self, phase: Phase, iteration: int) -> bool:
        """Return True if `evaluate` must be called after this iteration."""
        return False

    def evaluate(self, status: Status) -> Work[None]:
        """Evaluate or preview the model."""
        yield


def fit(task: Task[Result], folder: Path | None = None, *, resume: bool = False, progress: Report = ignore) -> Result:
    """Train a task and return its result; see `fit_steps`. SIGTERM is handled like Ctrl-C: the run is saved."""
    with stoppable(), closing(fit_steps(task, folder, resume=resume, progress=progress)) as run:
        return finish(run)


def fit_steps(
    task: Task[Result], folder: Path | None = None, *, resume: bool = False, progress: Report = ignore
) -> Work[Result]:
    """Train a task as a generator that yields after every step and returns the result.

    Settings, log, checkpoints and the mark of a finished run are written to ``folder``, which is locked during training. A
    run that was interrupted, by Ctrl-C or by ``kill -9``, continues from its checkpoint with ``resume``; on a CPU, losses
    and weights are bit for bit those of an uninterrupted run.
    """
    wait_for_all()  # the other processes may still be reading the folder
    own = folder if processes()[0] == 0 else None  # only the first of several processes writes files
    with nullcontext() if own is None else lock_folder(own):
        if own is not None:
            check_started(own, resume=resume)  # again, because another process may have used the folder since
            remove_torn_files(own)
        state = _read_state(task, folder) if folder is not None and resume else None
        run = _Run(task, own, state, progress)
        try:
            yield from run.phases(state)
        except (KeyboardInterrupt, GeneratorExit):
            with suppress(DivergedError), unbroken():  # a diverged run is not saved
                run.save()
            raise
        finally:
            run.close()
        result = task.finish()
        if own is not None:
            (own / DONE).touch()
            (own / CHECKPOINT).unlink(missing_ok=True)
    return result


def _read_state(task: Task[Any], folder: Path) -> dict[str, Any]:
    check_same_run(task.settings, folder)
    state = read_checkpoint(folder / CHECKPOINT, task.settings.device)
    check_same_data(state["data"], task.fingerprint(), folder)
    return state


def check_same_data(before: str, fingerprint: str, folder: Path) -> None:
    """Raise RunFolderError unless the run in ``folder`` was started with the data that has this fingerprint."""
    if fingerprint != before:
        message = f"the run in {folder} was started with other data; give the same data, or start another run"
        raise RunFolderError(message, folder, "other data")


class _Clock:
    """A clock that counts seconds of training. It is stopped during evaluations and while files are written.

    With several lanes, the time of a run includes the set-up and evaluation of other runs.
    """

    def __init__(self, before: float = 0.0) -> None:
        self.before, self.since = before, math.nan  # nan: stopped

    def start(self) -> None:
        self.since = time.perf_counter()

    def stop(self) -> None:
        self.before, self.since = self.seconds(), math.nan

    def seconds(self) -> float:
        return self.before + (0.0 if math.isnan(self.since) else time.perf_counter() - self.since)


class _Run:
    def __init__(self, task: Task[Any], folder: Path | None, state: Mapping[str, Any] | None, report: Report) -> None:
        self.task, self.settings, self.folder, self.report, self.data = task, task.settings, folder, report, ""
        self.parts = task.phases()
        names = [phase.name for phase in self.parts]
        if state is not None and state["phase"] not in names:
            raise DamagedFileError(CHECKPOINT, f"the checkpoint has an unknown phase {state['phase']!r}", REMEDY)
        self.phase, self.done, self.losses = self.parts[0], 0, dict[str, Any]()
        self.step: Step | None = None  # while unsaved progress exists
        before = [] if state is None else state["devices"]
        self.devices = list(dict.fromkeys([*before, torch.device(self.settings.device).type]))
        self.clock = _Clock(0.0 if state is None else state["seconds"])
        self.saved = time.monotonic()
        self.log: Log | None = None
        if folder is not None:
            self.data = task.fingerprint() if state is None else state["data"]
            if state is None:
                write_json(folder / FILE, values_of(self.settings))
                write_json(folder / ENVIRONMENT, {**task.environment(), "data": self.data})
            place = None if state is None else (state["phase"], state["iteration"])
            self.log = Log(folder, phases=names, keep=place)
        task.open(0 if state is None else state["iteration"])

    def phases(self, state: dict[str, Any] | None) -> Work[None]:
        for phase in self.parts:
            if state is None or phase.name == state["phase"]:  # otherwise the phase was finished before
                yield from self._train(phase, state)
                state = None

    def _train(self, phase: Phase, state: dict[str, Any] | None) -> Work[None]:
        settings, total = self.settings, phase.iterations
        step, self.phase, self.done = phase.make_step(), phase, phase.start_iteration
        if state is not None:
            self._restore(step, state)
        upcoming = islice(phase.batches(self.done), max(0, total - self.done))
        first = list(islice(upcoming, 1))
        for inputs in first:
            step.prepare(*inputs)
        batches = chain(first, upcoming)
        self.step = step
        logged = (self.done, self.clock.seconds())
        self.clock.start()
        while True:
            if self.task.is_due(phase, self.done):
                self.clock.stop()
                status = Status(phase, self.done, self.losses, self.clock.seconds(), self.devices)
                yield from self.task.evaluate(status)
                self.clock.start()
            if self.done >= total:
                break
            lr = settings.lr * SCHEDULES[settings.schedule](self.done, total)
            inputs = next(batches)
            last = self.done + 1 == total
            logs = last or (self.done + 1) % settings.log_every == 0
            if reads := logs or self.task.is_due(phase, self.done + 1):
                yield WAIT
            with unbroken():  # a checkpoint between a step and its log line would lose the line
                self.losses = step(self.done, *inputs, lr=lr)
                self.done += 1
                if reads:
                    self.losses = mean_losses(self.losses)  # synchronizes the device, so the measured time is correct
                    if not math.isfinite(self.losses["loss"]):
                        raise self._diverged(f"the loss is {self.losses['loss']}")
                if logs:
                    now = self.clock.seconds()
                    self._log(lr, (self.done - logged[0]) / (now - logged[1]))
                    logged = (self.done, now)
            late = time.monotonic() - self.saved > SECONDS
            if last or late or (settings.save_every and self.done % settings.save_every == 0):
                self.losses = {name: float(value) for name, value in self.losses.items()}
                self.clock.stop()
                self.save()
                self.clock.start()
            yield
        self.clock.stop()
        self.step = None
        step.finish()

    def _restore(self, step: Step, state: dict[str, Any]) -> None:
        try:
            step.restore(state.pop("step"))  # pop: otherwise a second copy of the weights stays in memory
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise DamagedFileError(CHECKPOINT, "the checkpoint belongs to another model", REMEDY) from error
        self.done, self.losses = state["iteration"], state["losses"]

    def _diverged(self, problem: str) -> DivergedError:
        place = f"iteration {self.done} of {self.task.label or self.phase.name}"
        return DivergedError(f"{problem} at {place}; lower the learning rate", self.done)

    def _log(self, lr: float, per_second: float) -> None:
        if self.log is not None:
            self.log.write(self.phase.name, self.done, {**self.losses, "lr": lr, "per_second": per_second})
        values = {"iterations/s": per_second, **self.losses}
        self.report(Progress(self.task.label or self.phase.name, self.done, self.phase.iterations, values))

    def save(self) -> None:
        """Write a checkpoint, unless the loss or the weights are not finite."""
        self.saved = time.monotonic()
        if self.step is None:
            return
        losses = {name: float(value) for name, value in self.losses.items()}
        state = self.step.state()
        # checked in every process, so that none waits for another
        if not (all(map(math.isfinite, losses.values())) and is_finite(state)):
            raise self._diverged("the weights are not finite")
        if self.folder is not None:
            place = {"phase": self.phase.name, "iteration": self.done, "losses": losses, "seconds": self.clock.seconds()}
            content = {**place, "devices": self.devices, "data": self.data, "step": state}
            write_checkpoint(content, self.folder / CHECKPOINT)

    def close(self) -> None:
        if self.step is not None:
            self.step.release()
        if self.log is not None:
            self.log.close()
