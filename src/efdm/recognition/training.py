"""Train one run, or several side by side on one GPU."""

from __future__ import annotations

import dataclasses
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from efdm.data.samplers import Batches
from efdm.errors import DivergedError, SettingError
from efdm.models.backbones import build_backbone
from efdm.progress import Report, ignore
from efdm.recognition.settings import AnySettings, identity, resolved, run_label
from efdm.training import weights_dtype
from efdm.training.device import check_device
from efdm.training.distributed import check_divisible, processes
from efdm.training.files import Record, append_line, read_lines, rounded, write_lines
from efdm.training.fit import Phase, Status, Task, check_same_data, fit_steps
from efdm.training.folder import CHECKPOINT, DONE, ENVIRONMENT, check_folder
from efdm.training.lanes import Work, side_by_side
from efdm.training.settings import check_same_run, public, read_settings
from efdm.training.step import Step

BLOCK = 1024  # iterations whose indices are moved to the device together
RECORDS = "records.jsonl"
Data = TypeVar("Data")  # any type with a method ``to(device)``
Trained = TypeVar("Trained")


class RecognitionTask(Task[Trained], Generic[AnySettings, Data, Trained]):
    """Train a network with one output per class, and record each evaluation as a line of ``records.jsonl``."""

    settings: AnySettings

    def __init__(self, settings: AnySettings, data: Data, folder: Path | None, *, resume: bool, lanes: int) -> None:
        check_divisible(settings.batch)
        self.settings, self.data, self.lanes = settings, data, lanes
        self.folder = folder if processes()[0] == 0 else None  # only the first of several processes writes files
        self.run, self.label = identity(settings), run_label(settings)
        torch.manual_seed(settings.seed)  # initial weights
        # a checkpoint contains all weights, and the initial file may no longer exist
        weights = "random" if resume else settings.weights
        model = build_backbone(settings.backbone, self.count_classes(), weights=weights)
        self.model = model.to(weights_dtype(settings.precision))
        self.records: list[Record] = []
        self._environment = super().environment()

    @classmethod
    @abstractmethod
    def load(cls, settings: AnySettings, folder: Path, records: list[Record]) -> Trained:
        """Return the result of the finished run in ``folder``."""

    @staticmethod
    @abstractmethod
    def read(data: Any, settings: Any, progress: Report) -> Any:
        """Return the data of a run from the argument of `train` or `train_together`."""

    @staticmethod
    @abstractmethod
    def check_data(settings: Any, data: Any) -> None:
        """Raise SettingError if the data do not fit the settings."""

    @staticmethod
    @abstractmethod
    def fingerprint_of(settings: Any, data: Any) -> str:
        """Return a hash of the data that a run uses."""

    @abstractmethod
    def count_classes(self) -> int:
        """Return the number of outputs of the network."""

    @abstractmethod
    def make_step(self) -> Step:
        """Return the training step, which takes the indices of a batch."""

    @abstractmethod
    def sampler(self, start: int) -> Batches:
        """Return the batches of indices from iteration ``start`` on."""

    @abstractmethod
    def metrics(self) -> Work[Record]:
        """Evaluate the model and return the entries of a record."""

    def phases(self) -> list[Phase]:
        return [Phase("train", self.settings.iterations, self.make_step, self.batches)]

    def batches(self, start: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield the inputs of the step from iteration ``start`` on: the indices of a batch first."""
        chosen = islice(self.sampler(start), self.settings.iterations - start)
        while block := list(islice(chosen, BLOCK)):
            for indices in torch.stack(block).to(self.settings.device).unbind(0):
                yield (indices,)

    def fingerprint(self) -> str:
        return self.fingerprint_of(self.settings, self.data)

    def environment(self) -> Record:
        return self._environment

    def open(self, iteration: int) -> None:
        if self.folder is None:
            return
        path = self.folder / RECORDS
        if iteration and path.exists():
            self.records = [record for record in read_lines(path) if record["step"] <= iteration]
        write_lines(path, self.records)

    def is_due(self, phase: Phase, iteration: int) -> bool:
        every = self.settings.evaluate_every
        scheduled = iteration == phase.iterations or (iteration > 0 and every > 0 and iteration % every == 0)
        return scheduled and (not self.records or self.records[-1]["step"] < iteration)

    def evaluate(self, status: Status) -> Work[None]:
        settings = self.settings
        metrics = yield from self.metrics()
        record = {
            "run": self.run, "settings": public(settings), "seed": settings.seed, "step": status.iteration,
            "last": status.iteration == settings.iterations, "loss": rounded(status.losses["loss"]),
            "seconds": rounded(status.seconds), "per_second": rounded(status.iteration / status.seconds),
            "lanes": self.lanes, "device": " and ".join(status.devices), **metrics, "environment": self._environment,
        }  # fmt: skip
        self.records.append(json.loads(json.dumps(record)))  # with lists instead of tuples, as read from the file
        if self.folder is not None:
            append_line(self.folder / RECORDS, record)

    @classmethod
    def train(
        cls,
        settings: AnySettings,
        data: Any,
        folder: str | Path | None = None,
        *,
        resume: bool = False,
        progress: Report = ignore,
    ) -> Trained:
        """Train a network; `efdm.dg.train` and `efdm.reid.train` describe the arguments."""
        settings = resolved(settings)
        settings.check()
        check_device(settings.device)
        if folder is not None:
            folder = Path(folder)
            check_folder(folder, resume=resume)
        elif resume:
            raise SettingError("a run without a folder cannot be resumed; pass its folder", ("folder", "resume"))
        trained: list[Trained] = []
        pictures = _on_device(cls.read(data, settings, progress), settings.device)
        run = cls.train_steps(settings, pictures, folder, progress=progress)
        side_by_side([run], device=torch.device(settings.device), lanes=1, finished=trained.append)
        return trained[0]

    @classmethod
    def train_together(
        cls,
        runs: Sequence[AnySettings],
        data: Any,
        folder: str | Path | None = None,
        *,
        lanes: int = 1,
        progress: Report = ignore,
        finished: Callable[[Trained], None] = lambda _: None,
    ) -> None:
        """Train several networks, ``lanes`` at a time on one GPU, or one after the other on a CPU.

        Each run has a folder in ``folder``, named by its identity. Unfinished runs are resumed, and finished ones are loaded
        and not trained again. ``finished`` is called with each finished run. If a run diverges, the others are still
        trained, and DivergedError names it at the end. Any other error stops all runs after saving them.

        With several lanes the ``seconds`` of a record are longer than those of the run alone, because the lanes share the
        device; records contain the number of lanes.
        """
        if not runs:
            return
        runs = [resolved(settings) for settings in runs]
        for settings in runs:
            settings.check()
        names = [identity(settings) for settings in runs]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"runs must be distinct, got {len(repeated)} repeated: {', '.join(sorted(repeated))}")
        if len(devices := sorted({settings.device for settings in runs})) > 1:
            raise SettingError(f"all runs must have the same device, got {', '.join(devices)}", "device")
        check_device(runs[0].device)
        device = torch.device(runs[0].device)
        lanes = min(lanes, len(runs)) if device.type == "cuda" else 1
        pictures = _on_device(cls.read(data, runs[0], progress), device)
        diverged: list[DivergedError] = []

        def work(settings: AnySettings, name: str) -> Work[Trained | None]:
            try:
                place = Path(folder) / name if folder else None
                return (yield from cls.train_steps(settings, pictures, place, lanes=lanes, progress=progress))
            except DivergedError as error:
                diverged.append(error.with_traceback(None))  # the traceback would keep the run and its memory
                return None

        def call(trained: Trained | None) -> None:
            if trained is not None:
                finished(trained)

        side_by_side(map(work, runs, names), device=device, lanes=lanes, finished=call)
        raise_diverged(diverged, len(runs))

    @classmethod
    def train_steps(
        cls, settings: AnySettings, data: Data, folder: Path | None = None, *, lanes: int = 1, progress: Report = ignore
    ) -> Work[Trained]:
        """Start, resume or load a run as a generator that yields after every step. The data must be on the device."""
        if folder is not None and (folder / DONE).exists():
            check_same_run(settings, folder)
            fingerprint = cls.fingerprint_of(settings, data)
            before = json.loads((folder / ENVIRONMENT).read_text()).get("data", fingerprint)  # missing in older runs
            check_same_data(before, fingerprint, folder)
            return cls.load(settings, folder, read_lines(folder / RECORDS))
        resume = folder is not None and (folder / CHECKPOINT).exists()
        if folder is not None and resume and not settings.weights_sha256:
            started = read_settings(type(settings), folder)
            settings = dataclasses.replace(settings, weights_sha256=started.weights_sha256)  # type: ignore[type-var]
        run = cls(settings, data, folder, resume=resume, lanes=lanes)
        return (yield from fit_steps(run, folder, resume=resume, progress=progress))


def raise_diverged(errors: Sequence[DivergedError], runs: int) -> None:
    """Raise one DivergedError for all runs that diverged."""
    if errors:
        rest = "; the others finished" if len(errors) < runs else ""
        message = f"{len(errors)} of {runs} runs diverged{rest}: {'; '.join(map(str, errors))}"
        raise DivergedError(message, errors[0].iteration)


def _on_device(data: Data, device: str | torch.device) -> Data:
    device = torch.device(device)
    moved: Data = data.to(device)  # type: ignore[attr-defined]
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # the streams of the lanes do not wait for the copy
    return moved
