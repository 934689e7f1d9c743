"""Training of classifiers: one run, or several side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.data.datasets import Listing, check_domains
from efdm.data.domains import DomainSet, StreamedImages, batches_of
from efdm.data.samplers import Batches, domain_batches, uniform_batches
from efdm.data.torch_datasets import Datasets, from_datasets
from efdm.dg.classifier import load_classifier, save_classifier
from efdm.dg.evaluate import evaluate
from efdm.dg.settings import Settings
from efdm.dg.step import make_step
from efdm.errors import SettingError
from efdm.progress import Report, ignore
from efdm.recognition.model_file import MODEL
from efdm.recognition.training import RecognitionTask
from efdm.training.files import Record
from efdm.training.lanes import Work
from efdm.training.step import Step


@dataclass(frozen=True)
class Trained:
    """A finished run: the model in eval mode, and a record of each evaluation, the last at the end of the run."""

    settings: Settings
    model: nn.Module
    records: list[Record]
    classes: list[str]


def check_classes(data: DomainSet | Listing) -> None:
    """Raise SettingError unless the data have at least two classes."""
    if len(data.classes) < 2:
        problem = f"1 class ({', '.join(data.classes)}), expected at least 2"
        raise SettingError(f"{problem}; check the labels, or that folders are domain/class/picture", "data")


def sampler(settings: Settings, data: DomainSet, start: int = 0) -> Batches:
    """Return the batches of indices from iteration ``start`` on. Raise SettingError if the data do not fit the settings."""
    check_classes(data)
    check_domains("train_domains", settings.train_domains, data)
    check_domains("test_domains", settings.test_domains, data)
    pools = {domain: data.select(domain, "train") for domain in settings.train_domains}
    common: dict[str, Any] = {"seed": settings.seed, "epochs": "endless", "start": start}
    if settings.batches == "domains":
        return domain_batches(pools, settings.batch, domains=settings.domains_per_batch, **common)
    return uniform_batches(torch.cat(list(pools.values())), settings.batch, **common)


class ClassifierTask(RecognitionTask[Settings, DomainSet, Trained]):
    """Train a classifier on some domains and count correct predictions on all."""

    @staticmethod
    def read(data: DomainSet | Datasets, settings: Settings, progress: Report) -> DomainSet:
        """Return the data. Torch datasets by domain are read into memory by `efdm.data.from_datasets`."""
        pictures = data if isinstance(data, DomainSet) else from_datasets(data, size=settings.size, progress=progress)
        check_classes(pictures)
        return pictures

    @classmethod
    def load(cls, settings: Settings, folder: Path, records: list[Record]) -> Trained:
        classifier = load_classifier(folder / MODEL, settings.device)
        return Trained(settings, classifier.model, records, classifier.classes)

    @staticmethod
    def fingerprint_of(settings: Settings, data: DomainSet) -> str:
        return data.fingerprint()

    @staticmethod
    def check_data(settings: Settings, data: DomainSet) -> None:
        sampler(settings, data)

    def count_classes(self) -> int:
        return len(self.data.classes)

    def make_step(self) -> Step:
        return make_step(self.model, self.data, self.settings)

    def sampler(self, start: int) -> Batches:
        return sampler(self.settings, self.data, start)

    def batches(self, start: int) -> Iterator[tuple[Tensor, ...]]:
        if not isinstance(self.data.images, StreamedImages):
            return super().batches(start)
        return batches_of(self.data.images, islice(self.sampler(start), self.settings.iterations - start), use="training")

    def metrics(self) -> Work[Record]:
        settings, data = self.settings, self.data
        tested = {"val": data.domain_names, "test": settings.test_domains}
        counts = yield from evaluate(self.model, data, tested, settings.size, precision=settings.precision)
        official_test = [domain for domain in data.official_test if domain in settings.test_domains]
        return {**counts, **({"official_test": official_test} if official_test else {})}

    def finish(self) -> Trained:
        if self.folder is not None:
            classes, side = self.data.classes, self.data.images.shape[-1]
            save_classifier(self.model, self.folder / MODEL, classes=classes, settings=self.settings, stored_size=side)
        return Trained(self.settings, self.model.eval(), self.records, self.data.classes)


def train(
    settings: Settings,
    data: DomainSet | Datasets,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Report = ignore,
) -> Trained:
    """Train a classifier and write model, records and log to ``folder``, if given.

    Args:
        data: pictures of domains, or torch datasets by domain, which are read into memory.
        resume: continue an interrupted run with the same settings from its last checkpoint. On a CPU its losses are bit for
            bit those of an uninterrupted run. It may continue on another device; its records then name both, since CPUs and
            GPUs draw different random numbers.
        progress: receives the steps of the run.
    """
    return ClassifierTask.train(settings, data, folder, resume=resume, progress=progress)


train_together = ClassifierTask.train_together
