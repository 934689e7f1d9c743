"""Data sets by name, and the training pictures of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.data.folders import Skipped
from efdm.data.loading import digest
from efdm.data.memory import check_memory
from efdm.data.people import PersonSet, join, read_people
from efdm.data.people_layouts import LAYOUTS, find_people
from efdm.data.people_splits import SPLITS
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.reid.settings import DOMAIN_WORDS, Settings
from efdm.text import first_few, suggest


@dataclass(frozen=True, eq=False)
class PersonSets:
    """Data sets by name. Runs on the same training sets share one joined copy.

    ``paths`` and ``layouts`` say how `read_sets` read them, so that another of their published splits can be chosen.
    """

    sets: Mapping[str, PersonSet]
    paths: Mapping[str, Path] = field(default_factory=dict, repr=False)
    layouts: Mapping[str, str] = field(default_factory=dict, repr=False)
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
        return PersonSets({name: data.to(device) for name, data in self.sets.items()}, self.paths, self.layouts)

    def with_split(self, split: int) -> PersonSets:
        """Return the sets with one of their published splits. Sets with a single split are unchanged."""
        if unknown := self.sets.keys() - self.layouts.keys():
            raise SettingError(f"the published splits of {first_few(sorted(unknown))} are unknown; use read_sets", "data")
        sets = dict(self.sets)
        for name in (name for name, layout in self.layouts.items() if LAYOUTS[layout].splits > 1):
            parts = {shot.name: shot.splits for shot in find_people(self.paths[name], self.layouts[name], split).shots}
            files = [parts.get(file, ()) for file in sets[name].names]
            at = {part: torch.tensor([part in own for own in files]).nonzero()[:, 0] for part in SPLITS}
            sets[name] = replace(sets[name], splits=at)
        return PersonSets(sets, self.paths, self.layouts)

    def joined(self, names: Sequence[str]) -> PersonSet:
        """Return several sets as one."""
        names = tuple(names)
        if names not in self._joined:
            self._joined[names] = join([self[name] for name in names])
        return self._joined[names]

    def fingerprint(self, names: Collection[str] | None = None) -> str:
        """Return a SHA-256 of the fingerprints of all sets, or of those named."""
        return digest({name: self[name].fingerprint() for name in sorted(self.sets if names is None else names)})


def read_sets(
    paths: Mapping[str, Path],
    *,
    size: tuple[int, int] = Settings.size,
    split: int = 0,
    layouts: Mapping[str, str] | None = None,
    progress: Report = ignore,
) -> PersonSets:
    """Read several sets, each a folder or zip. The other arguments are those of `read_people`.

    ``layouts`` names the layouts of sets that are not recognized. ``split`` applies to sets with several published splits.
    """
    layouts = layouts or {}
    for name in layouts:
        check_choice("layout", name, paths)
    # errors in names are reported before pictures are read
    found = {name: find_people(path, layouts.get(name, "auto")).layout for name, path in paths.items()}
    splits = {name: split if LAYOUTS[layout].splits > 1 else 0 for name, layout in found.items()}
    for name in filter(splits.get, splits):
        find_people(paths[name], found[name], split)
    options: Any = {"size": size, "progress": progress}
    sets = {name: read_people(path, found[name], split=splits[name], **options) for name, path in paths.items()}
    return PersonSets(sets, paths, found)


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
    settings.check_batches(available, DOMAIN_WORDS[settings.domain_labels])
    return TrainingPictures(source.images, indices, people, domains, len(known))
