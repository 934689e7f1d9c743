"""Batches of indices.

All draws depend only on (seed, epoch), so a run resumed at any iteration, on any device, draws the same batches. The ranks
of a distributed run share each batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

import torch
from torch import Tensor

from efdm.errors import SettingError

Pool = Tensor | Sequence[int]  # indices (n,)
Pools = Sequence[Pool] | Mapping[str, Pool]


@dataclass(eq=False)
class Batches:
    """Batches of int64 indices on ``device``, for ``epochs`` epochs, starting at iteration ``start``.

    Iterating again continues with the epoch after the last one, so ``for epoch in range(50): for batch in batches:`` draws
    50 different epochs; `set_epoch` overrides that. ``draw`` returns the concatenated batches of an epoch, given its
    generator. ``batch`` is the size over all ranks, and rank r of ``world`` takes every ``world``-th index, starting at the
    r-th. ``len`` is the number of remaining iterations; endless batches have no length.
    """

    draw: Callable[[torch.Generator], Tensor]
    batch: int
    per_epoch: int  # iterations
    seed: int = 0
    epochs: int | Literal["endless"] = 1
    start: int = 0
    rank: int = 0
    world: int = 1
    device: torch.device | str = "cpu"
    _next: tuple[int, int] = field(default=(0, 0), init=False, repr=False)  # first epoch, and iterations to skip within it

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must be from 0 to world - 1, got rank {self.rank} of {self.world}")
        if self.batch < 1 or self.batch % self.world:
            raise SettingError(f"batch must be a positive multiple of world={self.world}, got {self.batch}", "batch")
        if self.start < 0 or (self.epochs != "endless" and self.start > self.epochs * self.per_epoch):
            raise ValueError(f"start is {self.start}, expected an iteration of {self.epochs} x {self.per_epoch}")
        self._next = (0, self.start)

    def __len__(self) -> int:
        if self.epochs == "endless":
            raise TypeError("endless batches have no length; per_epoch is the number of iterations in an epoch")
        return self.epochs * self.per_epoch - self._next[1]

    def __iter__(self) -> Iterator[Tensor]:
        first, done = self._next
        epoch, step = first + done // self.per_epoch, done % self.per_epoch
        while self.epochs == "endless" or epoch < first + self.epochs:
            self._next = (epoch + 1, 0)
            order = self.epoch(epoch).to(self.device)  # one copy per epoch
            for at in range(step, self.per_epoch):
                yield order[at * self.batch + self.rank : (at + 1) * self.batch : self.world]
            epoch, step = epoch + 1, 0

    def epoch(self, number: int) -> Tensor:
        """Return all indices of an epoch, over all ranks, on the CPU."""
        # hashed, so seed 0 in epoch 1 differs from seed 1 in epoch 0; on the CPU, because a GPU draws different numbers
        mixed = int.from_bytes(sha256(f"{self.seed}/{number}".encode()).digest()[:4], "little")
        return self.draw(torch.Generator().manual_seed(mixed))

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Start the next iteration at this epoch, and at this step within the epoch."""
        if epoch < 0 or not 0 <= step < self.per_epoch:
            raise ValueError(f"epoch {epoch}, step {step} does not exist; an epoch has steps 0 to {self.per_epoch - 1}")
        self._next = (epoch, step)


def uniform_batches(pool: Pool, batch: int, **options: Any) -> Batches:
    """Draw each index of ``pool`` at most once per epoch, in random order. An incomplete last batch is dropped.

    ``options`` are passed to `Batches`: ``seed``, ``epochs``, ``start``, ``rank``, ``world`` and ``device``.
    """
    pool = _indices(pool)
    if len(pool) < batch:
        raise SettingError(f"{len(pool)} pictures do not fill one batch of {batch}; use a smaller batch", "batch")
    per_epoch = len(pool) // max(1, batch)  # `Batches` raises for a batch of 0
    return Batches(functools.partial(_draw_uniform, pool=pool, count=per_epoch * batch), batch, per_epoch, **options)


def domain_batches(
    pools: Pools, batch: int, *, domains: int | Literal["all"] = "all", per_epoch: int | None = None, **options: Any
) -> Batches:
    """Draw batches with equal parts of ``domains`` of the pools: ``domains=2, batch=128`` draws 64 from each of two.

    The domains of each batch are drawn independently, and their parts are concatenated. The pictures of a domain are drawn
    without repetition until fewer than one part are left, then shuffled again. If a domain has fewer pictures than its part
    of the batch, all of them are repeated, some once more than others. ``per_epoch`` defaults to the number of batches that
    all pictures of the pools would fill. ``options`` are as in `uniform_batches`; every rank gets the same share of each
    domain.
    """
    tensors = [_indices(pool) for pool in (pools.values() if isinstance(pools, Mapping) else pools)]
    many = len(tensors) if domains == "all" else domains
    if not 1 <= many <= len(tensors):
        raise ValueError(f"domains must be from 1 to the number of pools or 'all', got {domains} for {len(tensors)} pools")
    parts = many * options.get("world", 1)
    if batch < 1 or batch % parts:
        message = f"batch must be a positive multiple of {parts} for equal parts of {many} domains on each rank, got {batch}"
        raise SettingError(message, "batch")
    per_epoch = per_epoch or max(1, sum(map(len, tensors)) // batch)
    draw = functools.partial(_draw_domains, pools=tensors, many=many, part=batch // many, iterations=per_epoch)
    return Batches(draw, batch, per_epoch, **options)


def identity_batches(pool: Pool, people: Tensor, batch: int, *, instances: int = 4, **options: Any) -> Batches:
    """Draw batches of ``batch // instances`` people with ``instances`` pictures each (PK sampling), one after another.

    ``people`` holds the person of every picture of the set, and ``pool`` the indices to draw from. The people of each batch
    are drawn independently; the pictures of a person and ``options`` are as in `domain_batches`, so all pictures of a
    person with fewer than ``instances`` are repeated.
    """
    pool, people = _indices(pool), people.cpu()
    if instances < 1 or batch < 1 or batch % instances:
        message = f"batch must be a positive multiple of instances={instances}, the pictures of one person, got {batch}"
        raise SettingError(message, ["batch", "instances"])
    order = pool[people[pool].argsort(stable=True)]
    pools = order.split(people[order].unique_consecutive(return_counts=True)[1].tolist())
    if batch // instances > len(pools):
        message = f"{len(pools)} people do not fill a batch of {batch} with {instances} pictures each"
        raise SettingError(f"{message}; use a smaller batch or more instances", ["batch", "instances"])
    return domain_batches(pools, batch, domains=batch // instances, **options)


def _draw_uniform(generator: torch.Generator, pool: Tensor, count: int) -> Tensor:
    return pool[torch.randperm(len(pool), generator=generator)[:count]]


def _draw_domains(generator: torch.Generator, pools: list[Tensor], many: int, part: int, iterations: int) -> Tensor:
    chosen = torch.rand(iterations, len(pools), generator=generator).argsort(1)[:, :many]
    out = torch.empty(iterations, many, part, dtype=torch.int64)
    for number, pool in enumerate(pools):
        rows = chosen == number
        out[rows] = _draw_rows(generator, pool, part, int(rows.sum()))
    return out.reshape(-1)


def _draw_rows(generator: torch.Generator, pool: Tensor, part: int, rows: int) -> Tensor:
    """Draw ``(rows, part)`` indices of a pool. Within a row, an index repeats only after all others have been drawn."""
    rows_per_round = max(1, len(pool) // part)  # drop the rest of a round: it could repeat in the next one
    rounds = []
    for _ in range(-(-rows // rows_per_round)):
        shuffles = [torch.randperm(len(pool), generator=generator) for _ in range(-(-part // len(pool)))]
        rounds.append(torch.cat(shuffles)[: rows_per_round * part])
    return pool[torch.cat(rounds).reshape(-1, part)[:rows]] if rounds else pool.new_empty(0, part)


def _indices(pool: Pool) -> Tensor:
    pool = torch.as_tensor(pool).cpu()
    if pool.ndim != 1 or len(pool) == 0 or pool.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"a pool is {pool.dtype} {tuple(pool.shape)}, expected indices (n,) of at least one picture")
    return pool.long()
