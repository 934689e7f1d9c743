"""Datasets of ``torch.utils.data`` as a `DomainSet`."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from efdm.data.datasets import uneven_classes
from efdm.data.domains import DomainSet, Storage, StreamedImages, check_stored, labelled
from efdm.data.images import resize, to_uint8
from efdm.data.layouts import Item, Split, assign
from efdm.data.loading import empty_images
from efdm.data.memory import STREAM
from efdm.errors import SettingError
from efdm.progress import Progress, Report, ignore

Datasets = Mapping[str, "Dataset[Any] | DataLoader[Any]"] | Dataset[Any] | DataLoader[Any]
PICTURE = "expected a PIL image of 8 bits, an array uint8 (h, w, 3), or a tensor (3, h, w), uint8 or float from 0 to 1"


@dataclass(frozen=True, slots=True)
class _Entry:
    """An item of a dataset. ``domain`` is None if the item itself contains it; ``classes`` are the names of labels."""

    dataset: Any
    index: int
    domain: str | None
    classes: Sequence[str] | None

    def __str__(self) -> str:
        return f"item {self.index}" + ("" if self.domain is None else f" of {self.domain!r}")


def from_datasets(
    datasets: Datasets,
    *,
    classes: Sequence[str] | None = None,
    size: int = 227,
    split: Split = 0.1,
    seed: int = 0,
    storage: Storage = "memory",
    augment: Callable[[Tensor], Tensor] | None = None,
    workers: int = 0,
    progress: Report = ignore,
) -> DomainSet:
    """Return the pictures of map-style datasets as a `DomainSet`.

    Args:
        datasets: a dataset of (picture, label) for each domain, by name, or one dataset of (picture, label, domain).
            Pictures are PIL images, arrays uint8 ``(h, w, 3)``, or tensors ``(3, h, w)`` or ``(1, h, w)``, uint8 or floats
            from 0 to 1. They are normalized in training, so leave out transforms that normalize. Only the dataset of a
            `DataLoader` is used, because the settings of a run define its batches.
        classes: the names of the labels 0, 1, and so on. Default: the attribute ``classes`` of each dataset, or the labels.
        split: the share of each class and domain for "val", or lists of names: "photo/dog/12" is item 12 of "photo".
        storage: "memory" reads all pictures now, so random transforms are applied only once, and raises `SettingError` if
            they do not fit. "stream" reads and transforms pictures whenever they are needed, also in evaluation.
        augment: applied to a picture, uint8 ``(3, size, size)``, whenever it is drawn for training, such as a transform of
            ``torchvision.transforms.v2``. Needs ``storage="stream"``.
        workers: processes that read pictures, as in `DataLoader`. Default: this process.
    """
    check_stored(size, storage)
    if augment is not None and storage != "stream":
        raise SettingError("augment needs storage='stream', because pictures in memory are read once", "storage")
    entries = list(_entries(datasets, classes))
    images = empty_images(len(entries), (size, size), remedy=STREAM) if storage == "memory" else None
    items: list[Item] = []
    read = functools.partial(_read, size=size, storage=storage)
    for item, picture in DataLoader(entries, batch_size=None, collate_fn=read, num_workers=workers):  # type: ignore[arg-type]
        if images is not None:
            images[len(items)] = picture
        items.append(item)
        progress(Progress("reading pictures", len(items), len(entries)))
    known = [name for entry in {id(e.classes): e for e in entries}.values() for name in entry.classes or ()]
    used = sorted({item.label for item in items}, key=lambda name: (len(name), name) if name.isdecimal() else (0, name))
    domains = list(datasets) if isinstance(datasets, Mapping) else sorted({item.domain for item in items})
    stream = functools.partial(_picture, size=size)
    stored = StreamedImages(entries, stream, size, workers, augment) if images is None else images
    data = labelled(stored, assign(items, split, seed), list(dict.fromkeys([*known, *used])), domains)
    if differences := uneven_classes(data, domains):
        warnings.warn(f"classes differ between domains: {'; '.join(differences)}; check the names of labels", stacklevel=2)
    return data


def _entries(datasets: Datasets, classes: Sequence[str] | None) -> Iterator[_Entry]:
    sources = datasets if isinstance(datasets, Mapping) else {None: datasets}
    if not sources:
        raise ValueError("no dataset given; expected one for each domain, by name")
    for domain, source in sources.items():
        dataset: Any = source.dataset if isinstance(source, DataLoader) else source
        where = "the dataset" if domain is None else f"the dataset of {domain!r}"
        if isinstance(dataset, str | os.PathLike):
            raise TypeError(f"{where} is the path {dataset}; read folders with load_domains")
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise TypeError(f"{where} has no items by index; expected a map-style dataset, or a list of its items")
        if len(dataset) == 0:
            raise ValueError(f"{where} is empty; expected at least one item")
        inner = dataset
        while not hasattr(inner, "classes") and hasattr(inner, "dataset"):  # Subset
            inner = inner.dataset
        names = classes or getattr(inner, "classes", None)
        yield from (_Entry(dataset, index, domain, names) for index in range(len(dataset)))


def _read(entry: _Entry, size: int, storage: Storage) -> tuple[Item, Tensor | None]:
    """Return the description of an item and, unless it is streamed, its picture."""
    targets = getattr(entry.dataset, "targets", None)  # labels of torchvision's datasets, without reading pictures
    if storage == "stream" and targets is not None and not getattr(entry.dataset, "target_transform", None) and entry.domain:
        return _item(entry, targets[entry.index], entry.domain), None
    content = _content(entry)
    item = _item(entry, content[1], entry.domain or str(_number(content[2])))
    return item, _picture(entry, size, content) if storage == "memory" else None


def _content(entry: _Entry) -> Sequence[Any]:
    content = entry.dataset[entry.index]
    needed = ["picture", "label"] + ["domain"] * (entry.domain is None)
    if not isinstance(content, tuple | list) or len(content) < len(needed):
        what = f"{len(content)} values" if isinstance(content, tuple | list) else type(content).__name__
        hint = "; or pass a dataset for each domain, by name" if entry.domain is None else ""
        raise TypeError(f"{entry} is {what}, expected ({', '.join(needed)}){hint}")
    return content


def _item(entry: _Entry, label: Any, domain: str) -> Item:
    label, names = _number(label), entry.classes
    if isinstance(label, int):
        if names is not None and not 0 <= label < len(names):
            raise ValueError(f"{entry} has label {label}, expected 0 to {len(names) - 1} for {len(names)} classes")
        label = str(label) if names is None else names[label]
    if not isinstance(label, str):
        raise TypeError(f"{entry} has label {label!r}, expected an integer or a name")
    return Item(f"{domain}/{label}/{entry.index}", domain, label)


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and prod(value.shape) == 1 else value  # a tensor or array of one number


def _picture(entry: _Entry, size: int, content: Sequence[Any] | None = None) -> Tensor:
    """Return the picture of an item as uint8 ``(3, size, size)``."""
    picture = given = (content or _content(entry))[0]
    if isinstance(picture, Image.Image) and picture.mode[0] not in "IF":  # 16 and 32 bits
        picture = np.array(picture.convert("RGB"))
    if isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim == 3:
        picture = torch.tensor(picture).permute(2, 0, 1)  # a copy: from_numpy warns if the array is read-only
    is_picture = isinstance(picture, Tensor) and picture.ndim == 3 and len(picture) in (1, 3)
    if not is_picture or not (picture.is_floating_point() or picture.dtype == torch.uint8):
        what = f"{given.dtype} {tuple(given.shape)}" if hasattr(given, "shape") else f"{given!r:.60}"
        raise TypeError(f"the picture of {entry} is {what}; {PICTURE}")
    if picture.is_floating_point():
        low, high = picture.min().item(), picture.max().item()
        if not (low > -1e-3 and high < 1 + 1e-3):  # also for NaN; resizing may overshoot a little
            message = f"the picture of {entry} has values from {low:.3g} to {high:.3g}, expected 0 to 1"
            raise ValueError(f"{message}; leave out transforms that normalize")
        picture = to_uint8(picture)
    return resize(picture.expand(3, -1, -1), (size, size))
