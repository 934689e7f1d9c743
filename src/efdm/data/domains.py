"""Labelled pictures of several domains, all of one size, in memory or read when they are needed."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from efdm.data.folders import Skipped
from efdm.data.images import PictureError, StrPath
from efdm.data.layouts import SPLITS, Item, Split, assign, by_lists, find_items
from efdm.data.loading import check_rows, digest, read_images, read_resized
from efdm.data.memory import STREAM, check_memory
from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore

Storage = Literal["memory", "stream"]


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """A lazy tensor of pictures, uint8 ``(n, 3, size, size)`` on ``device``. Indexing it reads the pictures.

    ``read(item)`` returns one picture, uint8 ``(3, size, size)`` on the CPU. `batches_of` reads ahead in ``workers``
    processes, or in this process if ``workers`` is 0. ``augment`` is applied to single pictures, in training only.
    """

    items: Sequence[Any]
    read: Callable[[Any], Tensor]
    size: int
    workers: int = 0
    augment: Callable[[Tensor], Tensor] | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype = torch.uint8

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.items), 3, self.size, self.size))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return torch.stack([self.read(self.items[i]) for i in indices.tolist()]).to(self.device)

    def to(self, device: torch.device | str) -> StreamedImages:
        return replace(self, device=torch.device(device))

    def subset(self, indices: Tensor) -> StreamedImages:
        return replace(self, items=[self.items[i] for i in indices.tolist()])


def batches_of(
    images: Tensor | StreamedImages, batches: Iterable[Tensor], use: Literal["training", "evaluation"] = "evaluation"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each batch of indices with its pictures, on the device of the images."""
    if isinstance(images, Tensor):
        yield from ((at, images[at]) for at in (at.to(images.device) for at in batches))
        return
    chosen: Any = (at.tolist() for at in batches if len(at))
    dataset: Any = range(len(images))
    read = functools.partial(_read_batch, images=images, augment=images.augment if use == "training" else None)
    # pictures are not pinned: the thread that pins them would disturb the capture of a CUDA graph
    for batch in DataLoader(dataset, batch_sampler=chosen, collate_fn=read, num_workers=images.workers):
        if isinstance(batch, PictureError):
            raise batch
        indices, pictures = batch
        yield indices.to(images.device), pictures.to(images.device)


def _read_batch(indices: list[int], images: StreamedImages, augment: Callable[[Tensor], Tensor] | None) -> Any:
    pictures = (images.read(images.items[index]) for index in indices)
    try:
        return default_collate(list(zip(indices, map(augment, pictures) if augment else pictures, strict=True)))
    except PictureError as error:
        return error  # not raised, because DataLoader adds the worker's traceback to the message


@dataclass(frozen=True, eq=False, repr=False)
class DomainSet:
    """Pictures of several domains: ``images`` uint8 ``(N, 3, S, S)``, with ``labels`` and ``domains`` int64 ``(N,)``.

    ``names``, ``classes`` and ``domain_names`` are the names of pictures, labels and domains. ``images`` is a tensor, or a
    `StreamedImages` that reads pictures when it is indexed.
    ``splits[domain][split]`` are sorted indices. "train" and "val" are disjoint; "test" is the whole domain, or an
    official test split without pictures of the others. ``skipped`` lists (name, reason) of pictures that are not in the
    set; ``notes`` are warnings about the source.
    """

    images: Tensor | StreamedImages
    labels: Tensor
    domains: Tensor
    names: list[str]
    classes: list[str]
    domain_names: list[str]
    splits: dict[str, dict[str, Tensor]]
    skipped: Skipped = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_rows(self, ("labels", "domains"))
        if set(self.splits) != set(self.domain_names) or any(set(s) != set(SPLITS) for s in self.splits.values()):
            raise ValueError(f"splits must have {', '.join(SPLITS)} for each of {', '.join(self.domain_names)}")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        what = f"{len(self)} pictures of {self.images.shape[-1]} px, {len(self.classes)} classes"
        return f"DomainSet({what}, domains: {', '.join(self.domain_names)})"

    def to(self, device: torch.device | str) -> DomainSet:
        """Return the set with all tensors on a device. Raise `SettingError` if its memory is too small."""
        if isinstance(self.images, Tensor) and self.images.device.type != torch.device(device).type:
            what = f"{len(self)} pictures of {self.images.shape[-1]} pixels"
            check_memory(self.images.nbytes, what, device, remedy=STREAM)
        splits = {domain: {name: at.to(device) for name, at in parts.items()} for domain, parts in self.splits.items()}
        labels, domains = self.labels.to(device), self.domains.to(device)
        return replace(self, images=self.images.to(device), labels=labels, domains=domains, splits=splits)

    def select(self, domains: str | Sequence[str] | None = None, split: str | None = None) -> Tensor:
        """Return the indices of one domain, several domains in the given order or all (None), in one split or all (None)."""
        if split is not None:
            check_choice("split", split, SPLITS)
        parts = [torch.empty(0, dtype=torch.int64, device=self.images.device)]
        for domain in [domains] if isinstance(domains, str) else self.domain_names if domains is None else domains:
            check_choice("domain", domain, self.domain_names)
            whole = self.domains == self.domain_names.index(domain)
            parts.append(whole.nonzero()[:, 0] if split is None else self.splits[domain][split])
        return torch.cat(parts)

    def subset(self, indices: Tensor) -> DomainSet:
        """Return the subset at the given indices, in the given order. Classes and domains keep their numbers."""
        indices = torch.as_tensor(indices, dtype=torch.int64, device=self.images.device)
        if indices.ndim != 1 or len(indices.unique()) != len(indices):
            raise ValueError("the indices of a subset must be one-dimensional and unique")
        kept = {domain: {name: torch.isin(indices, at) for name, at in own.items()} for domain, own in self.splits.items()}
        return replace(
            self,
            images=self.images.subset(indices) if isinstance(self.images, StreamedImages) else self.images[indices],
            labels=self.labels[indices],
            domains=self.domains[indices],
            names=[self.names[i] for i in indices.tolist()],
            splits={domain: {name: at.nonzero()[:, 0] for name, at in own.items()} for domain, own in kept.items()},
        )

    def counts(self, by: Literal["class", "split"] = "class") -> dict[str, dict[str, int]]:
        """Return the number of pictures of each domain by class or by split."""
        check_choice("by", by, ("class", "split"))
        if by == "split":
            return {domain: {name: len(at) for name, at in self.splits[domain].items()} for domain in self.domain_names}
        numbers = Counter(zip(self.domains.tolist(), self.labels.tolist(), strict=True))
        rows = enumerate(self.domain_names)
        return {domain: {label: numbers[i, j] for j, label in enumerate(self.classes)} for i, domain in rows}

    @property
    def official_test(self) -> list[str]:
        """The domains with an official test split: their "test" is not the whole domain."""
        return [domain for domain in self.domain_names if len(self.splits[domain]["test"]) < len(self.select(domain))]

    def fingerprint(self) -> str:
        """Return a SHA-256 of names, stored size, labels, domains and splits, independent of the device."""
        splits = {d: {name: at.tolist() for name, at in self.splits[d].items()} for d in self.domain_names}
        numbers = [self.labels.tolist(), self.domains.tolist(), list(self.images.shape[2:])]
        return digest([self.names, self.classes, self.domain_names, *numbers, splits])


def load_domains(
    source: StrPath | Sequence[StrPath],
    *,
    size: int = 227,
    domains: Sequence[str] | None = None,
    split: Split = 0.1,
    seed: int = 0,
    storage: Storage = "memory",
    workers: int | None = None,
    progress: Report = ignore,
) -> DomainSet:
    """Read pictures stored as ``domain/class/picture`` from a folder, a zip, several of them, or a folder of zips.

    ``domains`` defaults to all; the pictures of other domains are not read. ``split`` is the share of each class and domain
    for "val", or lists of names ``{"train": [...], "val": [...]}``, matched without extension. Split folders
    (``domain/train/class``) override a share, as do lists like those of DomainNet (``clipart_train.txt`` and
    ``clipart_test.txt`` beside ``clipart``): then "test" is the second list, and "val" a share of the first.
    Pictures are resized to squares without keeping their aspect ratio, as is usual for these sets. Damaged pictures are
    listed in ``skipped`` and do not change the splits of the others.

    A set that does not fit in memory raises `SettingError`. ``storage="stream"`` reads pictures whenever they are needed,
    in ``workers`` processes; a damaged picture then raises an error when it is read. Training gives the same result.
    """
    items, outside = find_items(source)
    for domain in domains or ():
        check_choice("domains", domain, sorted({item.domain for item in items}))
    items = [item for item in items if domains is None or item.domain in domains]
    listed, unlisted = (items, []) if isinstance(split, Mapping) else by_lists(items)
    items = assign(listed, split, seed)
    data = decode_items(items, size=size, storage=storage, workers=workers, progress=progress)
    return replace(data, skipped=[*outside, *unlisted, *data.skipped])


def decode_items(
    items: Sequence[Item],
    *,
    size: int,
    classes: Sequence[str] | None = None,
    storage: Storage = "memory",
    workers: int | None = None,
    progress: Report = ignore,
) -> DomainSet:
    """Read all pictures into one tensor with ``workers`` threads (default: one per core), or stream them.

    Classes are numbered alphabetically, or in the order of ``classes``.
    """
    check_stored(size, storage)
    names = classes or sorted({item.label for item in items}), sorted({item.domain for item in items})
    if storage == "stream":
        read = functools.partial(read_resized, size=(size, size))
        return labelled(StreamedImages(items, read, size, workers or os.cpu_count() or 1), items, *names)
    images, readable, skipped = read_images(items, (size, size), workers, progress, remedy=STREAM)
    return replace(labelled(images, readable, *names), skipped=skipped)


def labelled(
    images: Tensor | StreamedImages, items: Sequence[Item], classes: Sequence[str], domains: Sequence[str]
) -> DomainSet:
    """Return the set of these pictures with the labels, domains and splits of their items."""
    splits: dict[str, dict[str, list[int]]] = {domain: {name: [] for name in SPLITS} for domain in domains}
    for index, item in enumerate(items):
        for name in item.splits:
            splits[item.domain][name].append(index)
    return DomainSet(
        images,
        torch.tensor([classes.index(item.label) for item in items], dtype=torch.int64),
        torch.tensor([domains.index(item.domain) for item in items], dtype=torch.int64),
        [item.name for item in items],
        list(classes),
        list(domains),
        {d: {name: torch.tensor(at, dtype=torch.int64) for name, at in own.items()} for d, own in splits.items()},
    )


def check_stored(size: int, storage: Storage) -> None:
    """Raise `SettingError` for an invalid size or storage."""
    if size < 1:
        raise SettingError(f"size must be at least 1 pixel, got {size}", "size")
    check_choice("storage", storage, get_args(Storage))
