"""Pictures of people for re-identification, in memory, all of one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from efdm.data.folders import Skipped
from efdm.data.images import PictureError, StrPath
from efdm.data.loading import check_rows, digest, read_images
from efdm.data.people_layouts import find_people, missing
from efdm.data.people_splits import SPLITS, Shot
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.text import first_few, make_unique, plural

UNNAMED = ("folders", "market-like")  # layouts of sets whose name is that of the folder or zip


@dataclass(frozen=True, eq=False, repr=False)
class PersonSet:
    """``images`` uint8 ``(n, 3, h, w)``, with the person, the camera and the data set of each, int64 ``(n,)``.

    ``people`` and ``cameras`` are numbers as in the file names; in Market-1501 and GRID, person 0 marks gallery pictures of
    people without a query. ``splits`` are sorted indices for "train", "query" and "gallery", empty if the set has no such
    split. ``sources`` are zeros unless several sets were joined. ``names`` are relative to the folder or zip. ``skipped``
    lists (name, reason) of pictures that are not in the set; ``notes`` are warnings about the copy.
    """

    name: str
    images: Tensor
    people: Tensor
    cameras: Tensor
    names: tuple[str, ...]
    splits: Mapping[str, Tensor]
    sources: Tensor
    skipped: Skipped = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_rows(self, ("people", "cameras", "sources"))
        if set(self.splits) != set(SPLITS):
            raise ValueError(f"splits are {', '.join(self.splits) or 'empty'}, expected {', '.join(SPLITS)}")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        height, width = self.images.shape[-2:]
        splits = ", ".join(f"{len(at)} {name}" for name, at in self.splits.items() if len(at))
        size = f"{plural(len(self), 'picture')} of {height} x {width} px"
        return f"PersonSet({self.name}: {size}, {len(self.people.unique())} people, {splits})"

    def to(self, device: torch.device | str) -> PersonSet:
        """Return the set with all tensors on a device."""
        tensors = {what: getattr(self, what).to(device) for what in ("images", "people", "cameras", "sources")}
        return replace(self, **tensors, splits={name: at.to(device) for name, at in self.splits.items()})

    def select(self, split: str) -> Tensor:
        """Return the indices of a split."""
        check_choice("split", split, SPLITS)
        return self.splits[split]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of pictures, people and cameras of each split."""
        return {
            name: {"pictures": len(at), "people": len(self.people[at].unique()), "cameras": len(self.cameras[at].unique())}
            for name, at in self.splits.items()
        }

    def fingerprint(self) -> str:
        """Return a SHA-256 of names, stored size, people, cameras, data sets and splits, independent of the device."""
        numbers = [values.tolist() for values in (self.people, self.cameras, self.sources)]
        splits = {name: at.tolist() for name, at in self.splits.items()}
        return digest([self.name, self.names, *numbers, list(self.images.shape[2:]), splits])


def join(sets: Sequence[PersonSet]) -> PersonSet:
    """Concatenate several sets. People and cameras are renumbered so that those of different sets stay distinct.

    ``sources`` are the positions in ``sets``, and each file name is preceded by the name of its set. The first set keeps its
    numbers.
    """
    if len(sizes := {tuple(data.images.shape[2:]) for data in sets}) != 1:
        raise ValueError(f"the sets have sizes {sorted(sizes)}; expected at least one set, all of the same size")
    if len(sets) == 1:
        return sets[0]
    named = list(zip(make_unique(data.name for data in sets), sets, strict=True))
    firsts = [sum(map(len, sets[:number])) for number in range(len(sets))]
    return PersonSet(
        name="+".join(name for name, _ in named),
        images=torch.cat([data.images for data in sets]),
        people=_renumber([data.people for data in sets]),
        cameras=_renumber([data.cameras for data in sets]),
        names=tuple(f"{name}/{file}" for name, data in named for file in data.names),
        splits={part: torch.cat([s.splits[part] + first for s, first in zip(sets, firsts, strict=True)]) for part in SPLITS},
        sources=torch.cat([torch.full_like(data.people, number) for number, data in enumerate(sets)]),
        skipped=[(f"{name}/{file}", why) for name, data in named for file, why in data.skipped],
        notes=[f"{name}: {note}" for name, data in named for note in data.notes],
    )


def _renumber(numbers: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors of numbers, shifted so that the numbers of different tensors differ."""
    out, first = [], 0
    for values in numbers:
        out.append(values + first)
        first = int(out[-1].max()) + 1 if len(values) else first
    return torch.cat(out)


def read_people(
    path: StrPath,
    layout: str = "auto",
    *,
    size: tuple[int, int] = (256, 128),
    split: int = 0,
    progress: Report = ignore,
) -> PersonSet:
    """Read a set for re-identification from a folder or zip.

    ``layout`` is a row of `efdm.data.people_layouts`, by default the one that fits the file names. Pictures are resized to
    ``size`` (height, width) without keeping their aspect ratio. ``split`` selects one of several published splits, such as
    the ten of GRID. Pictures of a set without a published split, or without the file that gives it, are "train". An
    incomplete copy is reported in ``notes``, and damaged pictures raise `PictureError`.
    """
    if min(size) < 1:
        raise SettingError(f"size must be a height and a width of at least 1 pixel, got {tuple(size)}", "size")
    listing = find_people(path, layout, split)
    name = Path(path).absolute().name.removesuffix(".zip") if listing.layout in UNNAMED else listing.layout
    data = read_shots(name, listing.shots, size, progress)
    if data.skipped:
        reasons = first_few([reason for _, reason in data.skipped], 5)
        message = f"{path}: {len(data.skipped)} of {plural(len(listing.shots), 'picture')} cannot be read: {reasons}"
        raise PictureError(f"{message}; replace or delete them")
    incomplete = missing(listing.layout, {split: len(at) for split, at in data.splits.items()})
    return replace(data, skipped=listing.skipped, notes=[*listing.notes, *incomplete])


def read_shots(name: str, shots: Sequence[Shot], size: tuple[int, int], progress: Report = ignore) -> PersonSet:
    """Read pictures into a set with the given name. Damaged pictures are listed in ``skipped``."""
    images, read, skipped = read_images(shots, size, None, progress)
    return PersonSet(
        name=name,
        images=images,
        people=torch.tensor([shot.person for shot in read], dtype=torch.int64),
        cameras=torch.tensor([shot.camera for shot in read], dtype=torch.int64),
        names=tuple(shot.name for shot in read),
        splits={part: torch.tensor([part in shot.splits for shot in read]).nonzero()[:, 0] for part in SPLITS},
        sources=torch.zeros(len(read), dtype=torch.int64),
        skipped=skipped,
    )
