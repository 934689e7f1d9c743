"""Protocols: which domains or data sets each run of a recipe is trained and tested on, and on which pictures.

Every domain has three splits: "train", "val", which is held out for selection, and "test", the whole domain or its official
test split. docs/protocols.md describes their use. `efdm.reid.protocols` divides a test set into queries and a gallery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import combinations, permutations
from typing import Any, Literal, NamedTuple

import torch

from efdm.data.domains import DomainSet
from efdm.data.layouts import key
from efdm.errors import SettingError
from efdm.reid.evaluate import SCORES


class Cell(NamedTuple):
    """The training domains and the test domains of a run."""

    train: tuple[str, ...]
    test: tuple[str, ...]


def leave_out(domains: Sequence[str], count: int = 1) -> list[Cell]:
    """Return the cells that train on all but ``count`` domains and test on those, in the order of the domains.

    >>> leave_out(["art", "photo", "sketch"])[0]
    Cell(train=('photo', 'sketch'), test=('art',))
    """
    _check_count(domains, count + 1)
    return [Cell(tuple(d for d in domains if d not in left), left) for left in combinations(domains, count)]


def single_source(domains: Sequence[str]) -> list[Cell]:
    """Return the cells that train on one domain and test on the others."""
    _check_count(domains, 2)
    return [Cell((source,), tuple(d for d in domains if d != source)) for source in domains]


def ordered_pairs(domains: Sequence[str]) -> list[Cell]:
    """Return the cells that train on one domain and test on another, for all pairs.

    >>> ordered_pairs(["market", "grid"])
    [Cell(train=('market',), test=('grid',)), Cell(train=('grid',), test=('market',))]
    """
    return [Cell((source,), (target,)) for source, target in permutations(domains, 2)]


def _check_count(domains: Sequence[str], least: int) -> None:
    if len(domains) < least or len(set(domains)) != len(domains):
        raise ValueError(f"the protocol needs at least {least} different domains, got {', '.join(domains) or 'none'}")


@dataclass(frozen=True)
class Protocol:
    """Which domains each run is trained and tested on, and the settings and splits of all runs."""

    about: str
    cells: Callable[[Sequence[str]], list[Cell]]  # the runs for a list of domains
    columns: Literal["test", "train"]  # the domains of a cell that are a column of a table
    heading: Literal["domain", "direction"] = "domain"  # of a column; a direction is "training → test domains"
    scored: Literal["all", "rest"] = "all"  # "rest" excludes the split "val" of a test domain
    split: Callable[[Any, int], Any] | None = None  # returns the data with the splits of a seed; None keeps its splits
    split_words: str = ""  # describes these splits in the name of the data
    per_domain: int = 0  # pictures of each training domain in a batch; 0 leaves the batch to the settings
    scores: tuple[str, ...] = ("pooled",)  # of the tables, unless the recipe names others
    settings: Mapping[str, Any] = field(default_factory=dict)

    def column(self, cell: Cell) -> str:
        """Return the name of the column of a cell."""
        if self.heading == "direction":
            return f"{' + '.join(cell.train)} → {' + '.join(cell.test)}"
        (domain,) = getattr(cell, self.columns)
        return str(domain)

    def validation_cells(self, domains: Sequence[str]) -> list[Cell]:
        """Return the additional cells for leave-one-domain-out cross-validation, with every pair of domains left out."""
        if self.columns != "test":
            raise SettingError("the protocol has no second training domain to leave out; use another rule", "selections")
        return leave_out(domains, 2)

    def settings_for(self, cell: Cell) -> dict[str, Any]:
        """Return the settings that the protocol fixes for a cell."""
        if not self.per_domain:
            return dict(self.settings)
        parts = len(cell.train)
        return {**self.settings, "batch": self.per_domain * parts, "batches": "domains", "domains_per_batch": parts}


def hold_out(data: DomainSet, seed: int) -> DomainSet:
    """Return the data set with a fifth of every domain as "val", the rest as "train" and everything as "test".

    Hashes of names choose the pictures, so copies of a data set in another order or format get the same splits.
    """
    splits = {}
    for domain in data.domain_names:
        every = data.select(domain)
        at = sorted(every.tolist(), key=lambda i: (sha256(f"{seed}/{key(data.names[i])}".encode()).digest(), i))
        val = len(at) // 5
        if not val:
            raise ValueError(f"{domain} has only {len(at)} pictures, of which a fifth is held out; expected at least 5")
        held_out, rest = (torch.tensor(sorted(part), device=every.device) for part in (at[:val], at[val:]))
        splits[domain] = {"train": rest, "val": held_out, "test": every}
    return replace(data, splits=splits)


def published_split(data: Any, seed: int) -> Any:
    """Return sets of people with the published split of the seed's number."""
    try:
        return data.with_split(seed)
    except SettingError as error:
        raise SettingError(f"seed {seed}: {error}", "seeds") from error


PROTOCOLS: Mapping[str, Protocol] = {
    "leave-one-out": Protocol("train on all domains but one, test on that one", leave_out, "test"),
    "single-source": Protocol(
        "train on one domain, test on the others", single_source, "train", scores=("pooled", "mean of domains"),
    ),
    "domainbed": Protocol(
        "leave one domain out as DomainBed does: a fifth of each domain held out, 32 pictures a domain",
        leave_out, "test", scored="rest", split=hold_out, split_words=", 20% held out by seed", per_domain=32,
        # Gulrajani and Lopez-Paz, "In Search of Lost Domain Generalization", ICLR 2021, and their code's defaults
        settings={
            "iterations": 5001, "evaluate_every": 300, "optimizer": "adam", "lr": 5e-5, "weight_decay": 0.0,
            "schedule": "constant", "augmentation": "domainbed", "batchnorm": "frozen",
        },
    ),
}  # fmt: skip

_reid = partial(Protocol, columns="test", heading="direction", scores=tuple(SCORES))
REID_PROTOCOLS: Mapping[str, Protocol] = {
    "cross-dataset": _reid("train on one data set, test on another", ordered_pairs),
    "cross-dataset, split by seed": _reid(
        "train on one data set, test on another, with the published split of the seed's number", ordered_pairs,
        split=published_split, split_words=", split by seed",
    ),
    "leave-one-out": _reid("train on all data sets but one, test on that one", leave_out),
}  # fmt: skip
