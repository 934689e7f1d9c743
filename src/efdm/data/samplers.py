"""Which pictures make a batch. All draws follow from (seed, epoch) alone, so that a run resumed at any iteration, on any
device, goes on exactly as the first would have; the ranks of a distributed run split the batches of a single one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

import torch
from torch import Tensor

from efdm.text import plural

Last = Literal["drop", "keep"]
Epochs = int | Literal["endless"]


@dataclass(eq=False)
class Batches:
    """Batches of indices, int64, on ``device``: ``epochs`` of them, from iteration ``start`` on.

    To iterate again goes on with the epoch after the last one drawn, so that ``for epoch in range(50): for batch in
    batches:`` has 50 different ones; `set_epoch` says otherwise. ``draw`` gives the indices of an epoch, its batches behind
    one another, from the generator of that epoch. ``batch`` is the size over all ranks: rank r of ``world`` gets every
    ``world``-th index of it from the r-th on. ``len`` is the number of iterations to come if it is iterated now; an endless
    one has none.
    """

    draw: Callable[[torch.Generator], Tensor]
    batch: int
    per_epoch: int  # iterations
    seed: int = 0
    epochs: Epochs = 1
    start: int = 0
    rank: int = 0
    world: int = 1
    device: torch.device | str = "cpu"
    _next: tuple[int, int] = field(default=(0, 0), init=False, repr=False)  # the first epoch, and iterations to leave out

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank is {self.rank} of {self.world}; give a rank from 0 to below world")
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; give the number of pictures of all ranks together, at least 1")
        if self.batch % self.world:
            raise ValueError(
                f"a batch of {self.batch} cannot be shared evenly by {self.world} ranks; "
                "batch counts the pictures of all ranks together, make it a multiple of world"
            )
        if self.epochs != "endless" and (not isinstance(self.epochs, int) or self.epochs < 0):
            raise ValueError(f"epochs is {self.epochs!r}; give a whole number or 'endless'")
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
            order = self.epoch(epoch).to(self.device)  # one copy an epoch, not one a batch
            for at in range(step, self.per_epoch):
                yield order[at * self.batch + self.rank : (at + 1) * self.batch : self.world]
            epoch, step = epoch + 1, 0

    def epoch(self, number: int) -> Tensor:
        """All indices of an epoch, of all ranks, on the CPU."""
        # hashed: seed 0 in epoch 1 is not seed 1 in epoch 0. On the CPU: a GPU draws other numbers from the same seed.
        mixed = int.from_bytes(sha256(f"{self.seed}/{number}".encode()).digest()[:4], "little")
        return self.draw(torch.Generator().manual_seed(mixed))

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Say with which epoch, and which iteration in it, the next ``for`` begins: to go on with a loop over epochs."""
        if epoch < 0 or not 0 <= step < self.per_epoch:
            raise ValueError(f"epoch {epoch}, step {step} is not there; an epoch has the steps 0 to {self.per_epoch - 1}")
        self._next = (epoch, step)

    def resumed(self, start: int) -> Batches:
        """The same batches from another iteration on, counted from the very first."""
        return replace(self, start=start)


def uniform_batches(pool: Tensor | Sequence[int], batch: int, *, last: Last = "drop", **where: Any) -> Batches:
    """Every index of ``pool`` once an epoch, in random order; what does not fill a last batch is dropped or kept.

    One that is kept may be shared unevenly: of 15 pictures in batches of 12, two ranks get 2 and 1 in the end. ``where`` is
    passed on: ``seed``, ``epochs`` (a number or "endless"), ``start``, ``rank``, ``world``, ``device``.
    """
    pool = _indices(pool, "pool")
    if last not in ("drop", "keep"):
        raise ValueError(f"last={last!r} is not one of 'drop', 'keep'")
    full, rest = divmod(len(pool), max(1, batch))  # a batch of 0 is refused below
    if last == "drop" and full == 0:
        raise ValueError(
            f"{len(pool)} pictures do not fill one batch of {batch}; make the batch smaller "
            "(in Python, uniform_batches(..., last='keep') gives smaller ones)"
        )
    if last == "keep" and 0 < rest < where.get("world", 1):  # an empty batch on one rank would stop the others for ever
        raise ValueError(f"the last batch has {plural(rest, 'picture')} for {where['world']} ranks; use last='drop'")
    kept = len(pool) if last == "keep" else full * batch
    draw = functools.partial(_draw_uniform, pool=pool, kept=kept)
    return Batches(draw, batch, full + (last == "keep" and rest > 0), **where)


def domain_batches(
    pools: Sequence[Tensor] | Mapping[str, Tensor],
    batch: int,
    *,
    domains: int | Literal["all"] = "all",
    per_epoch: int | None = None,
    **where: Any,
) -> Batches:
    """Batches of ``domains`` of the pools in equal parts: ``domains=2, batch=128`` is twice 64.

    The domains are drawn anew for every batch and lie behind one another in it. A domain's pictures are drawn without
    repetition until fewer are left than its part of a batch, then all of them again; one that is smaller than its part
    gives each of its pictures as often as any other, or once more. An epoch has ``per_epoch`` iterations, by default as
    many as batches of all the pools' pictures. ``where`` is as in `uniform_batches`; every rank gets the same share of each
    domain.
    """
    tensors = [_indices(p, "a pool") for p in (pools.values() if isinstance(pools, Mapping) else pools)]
    many = len(tensors) if domains == "all" else domains
    if not 1 <= many <= len(tensors):
        raise ValueError(f"domains is {domains}, there are {len(tensors)} pools; give a number up to that, or 'all'")
    if batch % many:
        raise ValueError(f"a batch of {batch} has no {many} equal parts; make it a multiple of {many}")
    part, world = batch // many, where.get("world", 1)
    if world > 0 and part % world:
        raise ValueError(
            f"{plural(part, 'picture')} of each of {many} domains cannot be shared evenly by {world} ranks; "
            f"make the batch a multiple of {many * world}"
        )
    if per_epoch is None:
        per_epoch = max(1, sum(map(len, tensors)) // max(1, batch))
    if per_epoch < 1:
        raise ValueError(f"per_epoch is {per_epoch}; an epoch has at least one iteration")
    draw = functools.partial(_draw_domains, pools=tensors, many=many, part=part, iterations=per_epoch)
    return Batches(draw, batch, per_epoch, **where)


def _draw_uniform(generator: torch.Generator, pool: Tensor, kept: int) -> Tensor:
    return pool[torch.randperm(len(pool), generator=generator)[:kept]]


def _draw_domains(generator: torch.Generator, pools: list[Tensor], many: int, part: int, iterations: int) -> Tensor:
    chosen = torch.rand(iterations, len(pools), generator=generator).argsort(1)[:, :many]
    out = torch.empty(iterations, many, part, dtype=torch.int64)
    for number, pool in enumerate(pools):
        here = chosen == number
        out[here] = _rows(generator, pool, part, int(here.sum()))
    return out.reshape(-1)


def _rows(generator: torch.Generator, pool: Tensor, part: int, rows: int) -> Tensor:
    """``(rows, part)`` of a pool; within a row no index comes twice before all have come once."""
    rows_a_round = max(1, len(pool) // part)  # the rest of a round is left out: it would meet itself in the next one
    rounds = []
    for _ in range(-(-rows // rows_a_round)):
        shuffles = [torch.randperm(len(pool), generator=generator) for _ in range(max(1, -(-part // len(pool))))]
        rounds.append(torch.cat(shuffles)[: rows_a_round * part])
    return pool[torch.cat(rounds).reshape(-1, part)[:rows]] if rounds else pool.new_empty(0, part)


def _indices(pool: Tensor | Sequence[int], what: str) -> Tensor:
    pool = torch.as_tensor(pool).cpu()
    if pool.ndim != 1 or len(pool) == 0 or pool.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{what} is {pool.dtype} {tuple(pool.shape)}, expected the indices of at least one picture, (n,)")
    return pool.long()
