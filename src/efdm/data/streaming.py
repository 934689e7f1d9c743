"""Pictures that are read when they are needed, for sets that do not fit in memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

Storage = Literal["memory", "stream"]
AHEAD = 4  # batches that are read before they are needed


@dataclass(frozen=True, eq=False)
class StreamedImages:
    """Stands in for a tensor of pictures, uint8 ``(n, 3, size, size)`` on ``device``. Indexing it reads the pictures.

    ``read(item)`` returns one picture, uint8 ``(3, size, size)`` on the CPU. It is called from ``workers`` threads (default:
    one per core).
    """

    items: Sequence[Any]
    read: Callable[[Any], Tensor]
    size: int
    workers: int | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    _pool: list[ThreadPoolExecutor] = field(default_factory=list, init=False, repr=False)
    dtype = torch.uint8

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.items), 3, self.size, self.size))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self._stacked(self._submit(indices))

    def ahead(self, batches: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each batch of indices with its pictures, while the pictures of the next batches are read."""
        waiting: deque[tuple[Tensor, list[Future[Tensor]]]] = deque()
        for indices in batches:
            waiting.append((indices, self._submit(indices)))
            if len(waiting) > AHEAD:
                first, pictures = waiting.popleft()
                yield first, self._stacked(pictures)
        for indices, pictures in waiting:
            yield indices, self._stacked(pictures)

    def to(self, device: torch.device | str) -> StreamedImages:
        return replace(self, device=torch.device(device))

    def subset(self, indices: Tensor) -> StreamedImages:
        return replace(self, items=[self.items[i] for i in indices.tolist()])

    def _submit(self, indices: Tensor) -> list[Future[Tensor]]:
        if not self._pool:
            self._pool.append(ThreadPoolExecutor(self.workers or os.cpu_count() or 1))
        return [self._pool[0].submit(self.read, self.items[i]) for i in indices.tolist()]

    def _stacked(self, pictures: Sequence[Future[Tensor]]) -> Tensor:
        return torch.stack([picture.result() for picture in pictures]).to(self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": []}  # threads cannot be sent to another process
