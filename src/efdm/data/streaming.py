"""Pictures that are read when they are needed, for sets that do not fit in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

Storage = Literal["memory", "stream"]


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Stands in for a tensor of pictures, uint8 ``(n, 3, size, size)`` on ``device``. Indexing it reads the pictures.

    ``read(item)`` returns one picture, uint8 ``(3, size, size)`` on the CPU. `batches_of` reads ahead in ``workers``
    processes, or in this process if there are none. ``augment`` changes single pictures, for training only.
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
    every: Any = range(len(images))
    read = functools.partial(_read_batch, images=images, augment=images.augment if use == "training" else None)
    # pictures are not pinned: the thread that pins them would disturb the capture of a CUDA graph
    for indices, pictures in DataLoader(every, batch_sampler=chosen, collate_fn=read, num_workers=images.workers):
        yield indices.to(images.device), pictures.to(images.device)


def _read_batch(indices: list[int], images: StreamedImages, augment: Callable[[Tensor], Tensor] | None) -> Any:
    pictures = (images.read(images.items[index]) for index in indices)
    return default_collate(list(zip(indices, map(augment, pictures) if augment else pictures, strict=True)))
