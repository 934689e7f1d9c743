"""Labelled pictures of several domains in memory, all of one size, for domain generalization."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from efdm.data.image_set import READING, bytes_of, digest
from efdm.data.images import PictureError, StrPath, resize
from efdm.data.layouts import SPLITS, Item, Split, assign, by_lists, empty_folders, find_items
from efdm.progress import Progress, Report, ignore

Fit = Literal["stretch", "crop"]


@dataclass(frozen=True, eq=False, repr=False)
class DomainSet:
    """``images`` uint8 ``(N, 3, S, S)``, ``labels`` and ``domains`` int64 ``(N,)``, and what their numbers mean.

    ``splits[domain][split]`` are indices in rising order: "train" and "val" share no picture; "test" is all of the domain,
    unless the source keeps test pictures apart. ``skipped`` is what had to be left out, as (name, reason); ``notes`` are
    sentences for whoever gave the source.
    """

    images: Tensor
    labels: Tensor
    domains: Tensor
    names: list[str]
    classes: list[str]
    domain_names: list[str]
    splits: dict[str, dict[str, Tensor]]
    skipped: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = len(self.names)
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError(f"images are {self.images.dtype} {tuple(self.images.shape)}, expected uint8 (N, 3, S, S)")
        for what, values in (("labels", self.labels), ("domains", self.domains)):
            if values.dtype != torch.int64 or values.shape != (n,):
                raise ValueError(
                    f"{what} are {values.dtype} {tuple(values.shape)}, expected int64 ({n},) as there are names"
                )
        if len(self.images) != n:
            raise ValueError(f"there are {len(self.images)} images and {n} names; give one name for each image")
        if set(self.splits) != set(self.domain_names) or any(set(s) != set(SPLITS) for s in self.splits.values()):
            raise ValueError(f"splits need {', '.join(SPLITS)} for each of {', '.join(self.domain_names)}")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        what = f"{len(self)} pictures of {self.images.shape[-1]} px, {len(self.classes)} classes"
        return f"DomainSet({what}, domains: {', '.join(self.domain_names)})"

    def to(self, device: torch.device | str) -> DomainSet:
        """The same set with all tensors on a device."""
        splits = {domain: {name: at.to(device) for name, at in parts.items()} for domain, parts in self.splits.items()}
        images, labels, domains = (values.to(device) for values in (self.images, self.labels, self.domains))
        return replace(self, images=images, labels=labels, domains=domains, splits=splits)

    def select(self, domains: str | Sequence[str] | None = None, split: str | None = None) -> Tensor:
        """Indices of one domain, of several in their order, or of all; of one split, or of every picture (None)."""
        if split is not None and split not in SPLITS:
            raise ValueError(f"there is no split {split!r}; choose one of {', '.join(SPLITS)}, or None for every picture")
        wanted = [domains] if isinstance(domains, str) else self.domain_names if domains is None else domains
        for domain in wanted:
            if domain not in self.splits:
                raise ValueError(f"there is no domain {domain!r}; choose from {', '.join(self.domain_names)}")
        if split is None:
            numbers = [self.domain_names.index(domain) for domain in wanted]
            parts = [(self.domains == number).nonzero()[:, 0] for number in numbers]
        else:
            parts = [self.splits[domain][split] for domain in wanted]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=self.images.device)

    def subset(self, indices: Tensor) -> DomainSet:
        """Only these pictures, in this order; the numbers of classes and domains stay what they are."""
        indices = torch.as_tensor(indices, dtype=torch.int64, device=self.images.device)
        if indices.ndim != 1 or len(indices.unique()) != len(indices):
            raise ValueError("a subset takes each picture once; give a list of different indices")
        place = torch.full((len(self),), -1, device=indices.device)
        place[indices] = torch.arange(len(indices), device=indices.device)

        def kept(at: Tensor) -> Tensor:
            moved = place[at]
            return moved[moved >= 0].sort().values

        return replace(
            self,
            images=self.images[indices],
            labels=self.labels[indices],
            domains=self.domains[indices],
            names=[self.names[i] for i in indices.tolist()],
            splits={domain: {name: kept(at) for name, at in parts.items()} for domain, parts in self.splits.items()},
        )

    def counts(self, by: Literal["class", "split"] = "class") -> dict[str, dict[str, int]]:
        """How many pictures each domain has of each class, or in each split."""
        if by == "split":
            return {domain: {name: len(at) for name, at in self.splits[domain].items()} for domain in self.domain_names}
        if by != "class":
            raise ValueError(f"by={by!r} is not one of 'class', 'split'")
        k = len(self.classes)
        table = torch.bincount(self.domains * k + self.labels, minlength=k * len(self.domain_names)).reshape(-1, k).tolist()
        rows = zip(self.domain_names, table, strict=True)
        return {domain: dict(zip(self.classes, row, strict=True)) for domain, row in rows}

    @property
    def official_test(self) -> list[str]:
        """The domains that keep test pictures apart: their "test" is not all of them."""
        return [d for d, of_class in self.counts("class").items() if len(self.splits[d]["test"]) < sum(of_class.values())]

    def fingerprint(self) -> str:
        """Return a SHA-256 of names, stored size, labels, domains and splits; it is the same on every device."""
        splits = {d: {name: at.tolist() for name, at in self.splits[d].items()} for d in self.domain_names}
        numbers = [self.labels.tolist(), self.domains.tolist(), list(self.images.shape[2:])]
        return digest([self.names, self.classes, self.domain_names, *numbers, splits])

    def table(self) -> str:
        """The counts as text: a line for each domain, with its splits and, where they are few, its classes."""
        classes = self.classes if len(self.classes) <= 12 else []
        by_class, by_split = self.counts("class"), self.counts("split")
        rows = [["domain", "all", *SPLITS, *classes]]
        for domain in self.domain_names:
            of_class = by_class[domain]
            numbers = [sum(of_class.values()), *(by_split[domain][s] for s in SPLITS), *(of_class[c] for c in classes)]
            rows.append([domain, *map(str, numbers)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]) for r in rows)


def load_domains(
    source: StrPath | Sequence[StrPath],
    *,
    size: int = 227,
    split: Split = 0.1,
    seed: int = 0,
    fit: Fit = "stretch",
    workers: int | None = None,
    progress: Report = ignore,
) -> DomainSet:
    """The pictures of a folder or zip, or of several, or of a folder of zips, that lie as ``domain/class/picture``.

    ``split`` is the share of each class and domain that becomes "val", the rest being "train"; or lists of names,
    ``{"train": [...], "val": [...]}``, matched without extension. Folders between domain and class (``domain/train/class``)
    go before a share, and so do lists like DomainNet's (``clipart_train.txt`` and ``clipart_test.txt`` beside ``clipart``):
    then "test" is what the second names, and "val" a share of the first. ``fit="stretch"`` brings every picture to a square
    as it is, the usual way for these sets, and "crop" takes its middle. Damaged pictures are skipped and named in
    ``skipped``; they do not change the others' splits.
    """
    found, outside = find_items(source)
    notes = empty_folders(found)
    items, unlisted = (found, []) if isinstance(split, Mapping) else by_lists(found)
    data = decode_items(items, assign(items, split, seed), size=size, fit=fit, workers=workers, progress=progress)
    return replace(data, skipped=outside + unlisted + data.skipped, notes=notes)


# --- reading ---------------------------------------------------------------------------------------------------------


def decode_items(
    items: Sequence[Item],
    parts: Sequence[set[str]],
    *,
    size: int,
    fit: Fit = "stretch",
    classes: Sequence[str] | None = None,
    workers: int | None = None,
    progress: Report = ignore,
) -> DomainSet:
    """Read all pictures into one tensor, ``workers`` at a time (default: one a core).

    Classes are numbered in the order of their names, or as in ``classes``.
    """
    if size < 1:
        raise ValueError(f"size is {size}; give the side of the pictures in pixels")
    if fit not in FITS:
        raise ValueError(f"fit={fit!r} is not one of {', '.join(map(repr, FITS))}")
    images = torch.empty(len(items), 3, size, size, dtype=torch.uint8)
    kept: list[tuple[Item, set[str]]] = []
    skipped = []
    one = functools.partial(_square, size=size, fit=fit)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        results = zip(items, parts, pool.map(one, items), strict=True)
        for done, (item, part, result) in enumerate(results, 1):
            if isinstance(result, Tensor):
                images[len(kept)] = result  # in order and at once: the set is never in memory twice
                kept.append((item, part))
            else:
                skipped.append((item.name, str(result)))
            progress(Progress(READING, done, len(items)))
    if not kept:
        raise PictureError(f"none of {len(items)} pictures could be read; the first: {skipped[0][1]}")
    classes = sorted({i.label for i in items}) if classes is None else list(classes)
    domains = sorted({i.domain for i in items})
    splits: dict[str, dict[str, list[int]]] = {domain: {name: [] for name in SPLITS} for domain in domains}
    for index, (item, part) in enumerate(kept):
        for name in part:
            splits[item.domain][name].append(index)
    return DomainSet(
        images[: len(kept)],
        torch.tensor([classes.index(item.label) for item, _ in kept]),
        torch.tensor([domains.index(item.domain) for item, _ in kept]),
        [item.name for item, _ in kept],
        classes,
        domains,
        {d: {name: torch.tensor(at, dtype=torch.int64) for name, at in p.items()} for d, p in splits.items()},
        skipped,
    )


def _square(item: Item, size: int, fit: Fit) -> Tensor | PictureError:
    image = bytes_of(item.source, item.name, near=size)
    return image if isinstance(image, PictureError) else resize(FITS[fit](image), (size, size))


def _middle(image: Tensor) -> Tensor:
    height, width = image.shape[1:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[:, top : top + side, left : left + side]


FITS: Mapping[str, Callable[[Tensor], Tensor]] = {"stretch": lambda image: image, "crop": _middle}
