"""Training of classifiers: one run, or several side by side on one GPU."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.data.domains import STREAM, DomainSet
from efdm.data.memory import check_memory
from efdm.data.samplers import Batches, domain_batches, uniform_batches
from efdm.data.streaming import StreamedImages
from efdm.data.torch_datasets import Datasets, from_datasets
from efdm.dg.classifier import MODEL, load_classifier, save_classifier
from efdm.dg.evaluate import evaluate
from efdm.dg.settings import Settings, check, identity, public, read_settings, resolved, run_label
from efdm.dg.step import make_step
from efdm.errors import DivergedError, SettingError
from efdm.models.backbones import build_backbone
from efdm.progress import Report, ignore
from efdm.training.device import check_device
from efdm.training.files import Record, append_line, read_lines, rounded, write_lines
from efdm.training.fit import Phase, Status, Task, check_same_data, fit_steps
from efdm.training.folder import CHECKPOINT, DONE, ENVIRONMENT, check_folder
from efdm.training.lanes import Work, side_by_side
from efdm.training.settings import check_same_run

BLOCK = 1024  # iterations whose indices are moved to the device together
RECORDS = "records.jsonl"


@dataclass(frozen=True)
class Trained:
    """A finished run: the model in eval mode, and a record of each evaluation, the last at the end of the run."""

    settings: Settings
    model: nn.Module
    records: list[Record]
    classes: list[str]


def train(
    settings: Settings,
    data: DomainSet | Datasets,
    folder: Path | None = None,
    *,
    resume: bool = False,
    progress: Report = ignore,
) -> Trained:
    """Train a classifier and write model, records and log to ``folder``, if given.

    Torch datasets, such as ``{"photo": dataset, "sketch": other}``, are read into memory by `efdm.data.from_datasets`, at
    ``settings.size``.

    A run that was interrupted, by Ctrl-C, SIGTERM or ``kill -9``, continues from its last checkpoint with ``resume=True``
    and the same settings. On a CPU its losses are bit for bit those of an uninterrupted run. It may continue on another
    device; its records then name both, since CPUs and GPUs draw different random numbers.
    """
    settings = resolved(settings)
    check(settings)
    check_device(settings.device)
    if folder is not None:
        check_folder(folder, resume=resume)
    elif resume:
        raise SettingError("a run without a folder cannot be resumed; give its folder", ("folder", "resume"))
    if not isinstance(data, DomainSet):
        data = from_datasets(data, size=settings.size, progress=progress)
    trained: list[Trained] = []
    run = train_steps(settings, _on_device(data, settings.device), folder, progress=progress)
    side_by_side([run], device=torch.device(settings.device), lanes=1, finished=trained.append)
    return trained[0]


def train_together(
    runs: Sequence[Settings],
    data: DomainSet,
    folder: Path | None = None,
    *,
    lanes: int = 1,
    progress: Report = ignore,
    finished: Callable[[Trained], None] = lambda _: None,
) -> None:
    """Train several classifiers, ``lanes`` at a time on one GPU, or one after the other on a CPU.

    Each run has a folder in ``folder``, named by its identity. Unfinished runs are resumed, and finished ones are loaded and
    not trained again. ``finished`` is called with each finished run. If a run diverges, the others are still trained, and
    DivergedError names it at the end. Any other error stops all runs after saving them.

    With several lanes the ``seconds`` of a record are longer than those of the run alone, because the lanes share the
    device; records contain the number of lanes.
    """
    if not runs:
        return
    runs = [resolved(settings) for settings in runs]
    for settings in runs:
        check(settings)
    names = [identity(settings) for settings in runs]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"every run must be given once, got {len(repeated)} repeated: {', '.join(sorted(repeated))}")
    if len(devices := sorted({settings.device for settings in runs})) > 1:
        raise SettingError(f"all runs must have the same device, got {', '.join(devices)}", "device")
    check_device(runs[0].device)
    device = torch.device(runs[0].device)
    lanes = min(lanes, len(runs)) if device.type == "cuda" else 1
    images = _on_device(data, device)
    diverged: list[DivergedError] = []

    def call(trained: Trained | None) -> None:
        if trained is not None:
            finished(trained)

    works = (
        _unless_diverged(train_steps(settings, images, folder and folder / name, lanes=lanes, progress=progress), diverged)
        for settings, name in zip(runs, names, strict=True)
    )
    side_by_side(works, device=device, lanes=lanes, finished=call)
    raise_diverged(diverged, len(runs))


def train_steps(
    settings: Settings, data: DomainSet, folder: Path | None = None, *, lanes: int = 1, progress: Report = ignore
) -> Work[Trained]:
    """Start, resume or load a run as a generator that yields after every step. The data must be on the device."""
    if folder is not None and (folder / DONE).exists():
        check_same_run(settings, folder)
        fingerprint = data.fingerprint()
        before = json.loads((folder / ENVIRONMENT).read_text()).get("data", fingerprint)  # missing in records of older runs
        check_same_data(before, fingerprint, folder)
        found = load_classifier(folder / MODEL, settings.device)
        return Trained(settings, found.model, read_lines(folder / RECORDS), found.classes)
    resume = folder is not None and (folder / CHECKPOINT).exists()
    if folder is not None and resume and not settings.weights_sha256:
        settings = dataclasses.replace(settings, weights_sha256=read_settings(folder).weights_sha256)
    task = ClassifierTask(settings, data, folder, resume=resume, lanes=lanes)
    return (yield from fit_steps(task, folder, resume=resume, progress=progress))


def raise_diverged(errors: Sequence[DivergedError], runs: int) -> None:
    """Raise one DivergedError for all runs that diverged."""
    if errors:
        message = f"{len(errors)} of {runs} runs diverged; the others finished: {'; '.join(map(str, errors))}"
        raise DivergedError(message, errors[0].iteration)


def _unless_diverged(work: Work[Trained], diverged: list[DivergedError]) -> Work[Trained | None]:
    try:
        return (yield from work)
    except DivergedError as error:
        diverged.append(error.with_traceback(None))  # the traceback would keep the run and its memory
        return None


def _on_device(data: DomainSet, device: str | torch.device) -> DomainSet:
    if isinstance(data.images, Tensor) and data.images.device.type != torch.device(device).type:
        what = f"{len(data)} pictures of {data.images.shape[-1]} pixels"
        check_memory(data.images.nbytes, what, device, remedy=STREAM)
    moved = data.to(device)
    if moved.images.device.type == "cuda":
        torch.cuda.synchronize(moved.images.device)  # the streams of the lanes do not wait for the copy
    return moved


def sampler(settings: Settings, data: DomainSet, start: int = 0) -> Batches:
    """Return the batches of indices from iteration ``start`` on."""
    pools = {domain: data.select(domain, "train") for domain in settings.train_domains}
    common: dict[str, Any] = {"seed": settings.seed, "epochs": "endless", "start": start}
    if settings.batches == "domains":
        return domain_batches(pools, settings.batch, domains=settings.domains_per_batch, **common)
    return uniform_batches(torch.cat(list(pools.values())), settings.batch, **common)


class ClassifierTask(Task[Trained]):
    """Train a classifier on some domains and count correct predictions on all."""

    def __init__(self, settings: Settings, data: DomainSet, folder: Path | None, *, resume: bool, lanes: int) -> None:
        self.settings: Settings = settings
        self.data, self.folder, self.lanes = data, folder, lanes
        self.run, self.label = identity(settings), run_label(settings)
        self.official_test = [domain for domain in data.official_test if domain in settings.test_domains]
        torch.manual_seed(settings.seed)  # initial weights
        # a checkpoint contains all weights, and the initial file may no longer exist
        weights = "random" if resume else settings.weights
        self.model = build_backbone(settings.backbone, len(data.classes), weights=weights)
        self.records: list[Record] = []
        self._environment = super().environment()

    def phases(self) -> list[Phase]:
        step = lambda: make_step(self.model, self.data, self.settings)  # noqa: E731
        return [Phase("train", self.settings.iterations, step, self._batches)]

    def _batches(self, start: int) -> Iterator[tuple[Tensor, ...]]:
        chosen = islice(sampler(self.settings, self.data, start), self.settings.iterations - start)
        if isinstance(self.data.images, StreamedImages):
            for indices, images in self.data.images.ahead(chosen):
                yield indices.to(images.device), images
            return
        while block := list(islice(chosen, BLOCK)):
            for indices in torch.stack(block).to(self.settings.device).unbind(0):
                yield (indices,)

    def fingerprint(self) -> str:
        return self.data.fingerprint()

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
        wanted = iteration == phase.iterations or (iteration > 0 and every > 0 and iteration % every == 0)
        return wanted and (not self.records or self.records[-1]["step"] < iteration)

    def evaluate(self, status: Status) -> Work[None]:
        settings = self.settings
        wanted = {"val": self.data.domain_names, "test": settings.test_domains}
        counts = yield from evaluate(self.model, self.data, wanted, settings.size, precision=settings.precision)
        record = {
            "run": self.run, "settings": public(settings), "seed": settings.seed, "step": status.iteration,
            "last": status.iteration == settings.iterations, "loss": rounded(status.losses["loss"]),
            "seconds": rounded(status.seconds), "per_second": rounded(status.iteration / status.seconds),
            "lanes": self.lanes, "device": " and ".join(status.devices), **counts,
            **({"official_test": self.official_test} if self.official_test else {}), "environment": self._environment,
        }  # fmt: skip
        self.records.append(json.loads(json.dumps(record)))  # with lists instead of tuples, as read from the file
        if self.folder is not None:
            append_line(self.folder / RECORDS, record)

    def finish(self) -> Trained:
        if self.folder is not None:
            stored: dict[str, Any] = {"classes": self.data.classes, "stored_size": self.data.images.shape[-1]}
            save_classifier(self.model, self.folder / MODEL, settings=self.settings, **stored)
        return Trained(self.settings, self.model.eval(), self.records, self.data.classes)
