"""Training of re-identification networks: one run, or several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from efdm.data.people import PersonSet
from efdm.data.samplers import Batches, domain_batches, identity_batches, uniform_batches
from efdm.errors import SettingError
from efdm.models import classifier_of
from efdm.progress import Report, ignore
from efdm.recognition.model_file import MODEL
from efdm.recognition.training import RecognitionTask
from efdm.reid.evaluate import score_entries
from efdm.reid.model import load_embedder, save_embedder
from efdm.reid.protocols import Trial, make_trials
from efdm.reid.sets import PersonSets, TrainingPictures, training_pictures
from efdm.reid.settings import Settings
from efdm.reid.step import make_step, scale_gradients
from efdm.training.files import Record
from efdm.training.lanes import Work
from efdm.training.step import Step

Sets = PersonSets | Mapping[str, PersonSet]


@dataclass(frozen=True)
class Trained:
    """A finished run: the model in eval mode, and a record of each evaluation, the last at the end of the run."""

    settings: Settings
    model: nn.Module
    records: list[Record]


def sampler(settings: Settings, pictures: TrainingPictures, start: int = 0) -> Batches:
    """Return the batches of indices from iteration ``start`` on. Raise SettingError if the pictures do not fit them."""
    common: dict[str, Any] = {"seed": settings.seed, "epochs": "endless", "start": start}
    if settings.batches == "people":
        return identity_batches(pictures.indices, pictures.people, settings.batch, instances=settings.instances, **common)
    if settings.batches == "domains":
        domains = pictures.domains[pictures.indices]
        pools = [pictures.indices[domains == domain] for domain in domains.unique()]
        return domain_batches(pools, settings.batch, domains=settings.domains_per_batch, **common)
    return uniform_batches(pictures.indices, settings.batch, **common)


def trials_of(settings: Settings, data: PersonSets) -> dict[str, list[Trial]]:
    """Return the trials of each test domain. Raise SettingError for a set that does not fit its protocol."""
    trials = {}
    for name in settings.test_domains:
        try:
            trials[name] = make_trials(data[name], settings.protocol_of(name), settings.protocol_seed)
        except SettingError as error:
            raise SettingError(str(error), "protocols") from error
    return trials


class ReidTask(RecognitionTask[Settings, PersonSets, Trained]):
    """Train a network to classify the people of some data sets, and rank the galleries of others by its features."""

    @staticmethod
    def read(data: Sets, settings: Settings, progress: Report) -> PersonSets:
        """Return the data as `PersonSets`. A mapping holds the sets by the names of training and test domains."""
        if isinstance(data, PersonSets):
            return data
        for name, each in data.items():
            if not isinstance(each, PersonSet):
                raise TypeError(f"the data set {name!r} is {each!r:.60}, expected a PersonSet; read it with read_people")
        return PersonSets(data)

    def __init__(self, settings: Settings, data: PersonSets, folder: Path | None, *, resume: bool, lanes: int) -> None:
        self.pictures = training_pictures(settings, data)
        self.trials = trials_of(settings, data)
        self.handles: list[RemovableHandle] = []
        super().__init__(settings, data, folder, resume=resume, lanes=lanes)

    @classmethod
    def load(cls, settings: Settings, folder: Path, records: list[Record]) -> Trained:
        return Trained(settings, load_embedder(folder / MODEL, settings.device).model, records)

    @staticmethod
    def fingerprint_of(settings: Settings, data: PersonSets) -> str:
        return data.fingerprint({*settings.train_domains, *settings.test_domains})

    @staticmethod
    def check_data(settings: Settings, data: PersonSets) -> None:
        trials_of(settings, data)
        sampler(settings, training_pictures(settings, data))

    def count_classes(self) -> int:
        return self.pictures.classes

    def make_step(self) -> Step:
        settings = self.settings
        step = make_step(self.model, self.pictures, settings)
        self.handles = scale_gradients(classifier_of(self.model), settings.classifier_lr, settings.weight_decay)
        return step

    def sampler(self, start: int) -> Batches:
        return sampler(self.settings, self.pictures, start)

    def metrics(self) -> Work[Record]:
        settings, scores = self.settings, {}
        options: Any = {"size": settings.size, "precision": settings.precision}
        for name, trials in self.trials.items():
            protocol = settings.protocol_of(name)
            scores[name] = yield from score_entries(self.model, self.data[name], trials, protocol, **options)
        return {"people": self.pictures.classes, "pictures": len(self.pictures.indices), "test": scores}

    def finish(self) -> Trained:
        for handle in self.handles:
            handle.remove()
        if self.folder is not None:
            save_embedder(self.model, self.folder / MODEL, people=self.pictures.classes, settings=self.settings)
        return Trained(self.settings, self.model.eval(), self.records)


def train(
    settings: Settings,
    data: Sets,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Report = ignore,
) -> Trained:
    """Train a re-identification network and write model, records and log to ``folder``, if given.

    ``data`` are sets of people by the names of training and test domains. The other arguments are those of `efdm.dg.train`.
    """
    return ReidTask.train(settings, data, folder, resume=resume, progress=progress)


train_together = ReidTask.train_together
