"""Which domains are trained on, which are tested, and which pictures of them.

Of every domain a set of pictures has three splits. **train** is trained on, in the training domains. **val** is never
trained on: in the training domains it is what training-domain validation looks at, in the test domains what an oracle
looks at. **test** is all of a domain, so the accuracy on a test domain counts every picture of it, as published numbers for
PACS do. Test domains have no part in training, so nothing is lost by counting their "train" pictures, too. A domain that
keeps test pictures apart, as VLCS does, is scored on those alone, and "val" is none of them.

The protocols differ in who is trained on whom, and in what is said of several test domains. DomainBed's also keeps its own
splits: a fifth of every domain is held out, drawn anew for every seed, and a test domain is scored on the other four fifths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import combinations
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch

from efdm.data.domains import DomainSet
from efdm.data.layouts import key


class Cell(NamedTuple):
    """One training: the domains it sees and those it is tested on."""

    train: tuple[str, ...]
    test: tuple[str, ...]


def leave_out(domains: Sequence[str], count: int = 1) -> list[Cell]:
    """Train on all but ``count`` domains, test on those, in the order of the domains.

    >>> leave_out(["art", "photo", "sketch"])[0]
    Cell(train=('photo', 'sketch'), test=('art',))
    """
    _several(domains, count + 1)
    return [Cell(tuple(d for d in domains if d not in left), left) for left in combinations(domains, count)]


def single_source(domains: Sequence[str]) -> list[Cell]:
    """Train on one domain, test on the others."""
    _several(domains, 2)
    return [Cell((source,), tuple(d for d in domains if d != source)) for source in domains]


def _several(domains: Sequence[str], least: int) -> None:
    if len(domains) < least or len(set(domains)) != len(domains):
        raise ValueError(f"the domains are {', '.join(domains) or 'none'}; at least {least} different ones are needed")


@dataclass(frozen=True)
class Protocol:
    """``cells`` are the trainings for a set of domains; ``listed`` says which side names a column of the table.

    ``scored`` is what the accuracy on a test domain counts: "all" of its pictures, or the "rest" without "val", which
    nobody may have looked at. ``held_out`` is the share of each domain that becomes "val", drawn anew for every seed; 0
    keeps the splits that the set came with. ``settings`` are what the protocol itself fixes; ``per_domain`` is the batch
    for each training domain, where the protocol counts it that way.
    """

    name: str
    about: str
    cells: Callable[[Sequence[str]], list[Cell]]
    listed: Literal["test", "train"]
    scored: Literal["all", "rest"] = "all"
    held_out: float = 0.0
    per_domain: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def column(self, cell: Cell) -> str:
        """The domain that names a column."""
        (domain,) = getattr(cell, self.listed)
        return str(domain)

    def validation_cells(self, domains: Sequence[str]) -> list[Cell]:
        """What leave-one-domain-out cross-validation needs besides `cells`: every two domains left out at once."""
        if self.listed != "test":
            raise ValueError(
                f"{self.name} trains on one domain, so there is none to leave out; choose another selection rule"
            )
        return leave_out(domains, 2)

    def settings_for(self, cell: Cell) -> dict[str, Any]:
        """What the protocol fixes for one training."""
        mine = dict(self.settings)
        if self.per_domain:
            parts = len(cell.train)
            mine |= {"batch": self.per_domain * parts, "batches": "domains", "domains_per_batch": parts}
        return mine

    def pictures(self, data: DomainSet, seed: int) -> DomainSet:
        """The set with the splits that a seed trains and tests on."""
        return hold_out(data, self.held_out, seed) if self.held_out else data


def hold_out(data: DomainSet, share: float, seed: int) -> DomainSet:
    """The same pictures with ``share`` of every domain as "val", the rest as "train" and all as "test".

    Drawn by hashes of names, so that copies of a set in another order or format agree.
    """
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; give the part of each domain to hold out, between 0 and 1")
    splits = {}
    for domain in data.domain_names:
        every = data.select(domain)
        at = sorted(every.tolist(), key=lambda i: (_hash(seed, data.names[i]), i))
        val = int(len(at) * share)
        if not val:
            raise ValueError(f"{domain} has {len(at)} pictures, of which {share:.0%} are none; hold out more")
        held, kept = (torch.tensor(sorted(part), device=every.device) for part in (at[:val], at[val:]))
        splits[domain] = {"train": kept, "val": held, "test": every}
    return replace(data, splits=splits)


def _hash(seed: int, name: str) -> bytes:
    return sha256(f"{seed}/{key(name)}".encode()).digest()


def check_unseen(data: DomainSet) -> None:
    """Raise unless "test" is all of a domain or has nothing of "val": only then do the counts of both tell what an oracle
    has not seen."""
    official_test = data.official_test
    for domain in data.domain_names:
        parts = data.splits[domain]
        if not len(parts["val"]):
            raise ValueError(f"{domain} has no pictures for 'val', which the selection rules look at; split off a share")
        if domain in official_test and torch.isin(parts["val"], parts["test"]).any():
            raise ValueError(
                f"the test pictures of {domain} are not all of it, and some are for 'val', so the accuracy without those an "
                "oracle saw cannot be told from the records; take them off one list, or leave 'oracle' out of the "
                "recipe's selections"
            )


PROTOCOLS: Mapping[str, Protocol] = MappingProxyType({
    p.name: p
    for p in (
        Protocol("leave-one-out", "train on all domains but one, test on that one", leave_out, "test"),
        Protocol(
            "single-source",
            "train on one domain, test on the others",
            single_source,
            "train",
        ),
        Protocol(
            "domainbed",
            "leave one domain out as DomainBed does: a fifth of each domain held out, 32 pictures a domain",
            leave_out,
            "test",
            scored="rest",
            held_out=0.2,
            per_domain=32,
            settings=MappingProxyType({
                # Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021, and their code's defaults
                "iterations": 5001, "evaluate_every": 300, "optimizer": "adam", "lr": 5e-5, "weight_decay": 0.0,
                "schedule": "constant", "augmentation": "domainbed", "batchnorm": "frozen",
            }),
        ),
    )
})  # fmt: skip
