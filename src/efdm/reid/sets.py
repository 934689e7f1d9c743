"""Data sets by name, and the training pictures of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from efdm.data.folders import Skipped
from efdm.data.loading import digest
from efdm.data.memory import check_memory
from efdm.data.people import PersonSet, join
from efdm.errors import SettingError
from efdm.recognition.settings import check_domains
from efdm.reid.settings import DOMAIN_WORDS, Settings
from efdm.text import suggest


@dataclass(frozen=True, eq=False)
class PersonSets:
    """Data sets by name. Runs on the same training sets share one joined copy."""

    sets: Mapping[str, PersonSet]
    _joined: dict[tuple[str, ...], PersonSet] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> PersonSet:
        if name not in self.sets:
            close = suggest(name, self.sets)
            hint = f"; did you mean {close}?" if close else ""
            message = f"no data set is named {name!r}, expected one of {', '.join(self.sets)}{hint}"
            raise SettingError(message, ("train_domains", "test_domains"))
        return self.sets[name]

    @property
    def domain_names(self) -> list[str]:
        return list(self.sets)

    @property
    def skipped(self) -> Skipped:
        """(name, reason) of pictures that are not in the sets."""
        return [(f"{name}/{file}", reason) for name, data in self.sets.items() for file, reason in data.skipped]

    @property
    def notes(self) -> list[str]:
        """Warnings about incomplete or damaged copies."""
        return [f"{name}: {note}" for name, data in self.sets.items() for note in data.notes]

    def counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the number of pictures, people and cameras of each set and split."""
        return {name: data.counts() for name, data in self.sets.items()}

    def to(self, device: torch.device | str) -> PersonSets:
        """Return the sets on a device. Raise SettingError if its memory is too small."""
        moved = [data for data in self.sets.values() if data.images.device.type != torch.device(device).type]
        pictures = f"{sum(map(len, moved))} pictures of {', '.join(data.name for data in moved)}"
        check_memory(sum(data.images.nbytes for data in moved), pictures, device)
        return PersonSets({name: data.to(device) for name, data in self.sets.items()})

    def joined(self, names: Sequence[str]) -> PersonSet:
        """Return several sets as one."""
        names = tuple(names)
        if names not in self._joined:
            self._joined[names] = join([self[name] for name in names])
        return self._joined[names]

    def fingerprint(self, names: Collection[str] | None = None) -> str:
        """Return a SHA-256 of the fingerprints of all sets, or of those named."""
        return digest({name: self[name].fingerprint() for name in sorted(self.sets if names is None else names)})


@dataclass(frozen=True, eq=False)
class TrainingPictures:
    """The pictures ``images[indices]`` that a run trains on. ``people`` are their classes, and -1 for all other pictures."""

    images: Tensor
    indices: Tensor
    people: Tensor
    domains: Tensor
    classes: int


def training_pictures(settings: Settings, data: PersonSets) -> TrainingPictures:
    """Return the training pictures of a run. Raise SettingError if there are none, or too few domains for the method."""
    source = data.joined(settings.train_domains)
    indices = source.select("train")
    for name in settings.train_domains:
        if not len(data[name].select("train")):
            raise SettingError(f"{name} has no pictures in the split 'train'; choose another set", "train_domains")
    known, numbers = source.people[indices].unique(return_inverse=True)
    if len(known) < 2:
        message = f"1 person in {', '.join(settings.train_domains)}, expected at least 2; check the names of the files"
        raise SettingError(message, "train_domains")
    people = torch.full_like(source.people, -1)
    people[indices] = numbers
    domains = source.cameras if settings.domain_labels == "cameras" else source.sources
    available = len(domains[indices].unique())
    check_domains(settings, available, DOMAIN_WORDS[settings.domain_labels])
    return TrainingPictures(source.images, indices, people, domains, len(known))
