"""Accuracies of one evaluation, their spread over seeds, and model selection: which evaluation a table reports.

A run has several evaluations, and a recipe with a ``grid`` has several runs per row, column and seed. Each rule of
`SELECTIONS` has its own table, and numbers of different rules must not be compared; docs/protocols.md describes them. Ties
go to the first combination and the earliest step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean, pstdev, stdev
from typing import Any, Literal, NamedTuple

from efdm.lab.protocols import Cell
from efdm.stats import standard_error

Record = Mapping[str, Any]
Records = Sequence[Record]
VALIDATION = "training-domain validation"


def counts(record: Record, domain: str, scored: str) -> tuple[int, int]:
    """Return the numbers of correct and of all pictures of a test domain.

    ``scored="all"`` counts every test picture, ``"rest"`` excludes the split "val". An official test split contains no
    picture of "val", so all of its pictures are counted.
    """
    correct, count = record["test"][domain]
    if scored == "rest" and domain not in record.get("official_test", ()):
        val_correct, val_count = record["val"][domain]
        return correct - val_correct, count - val_count
    return correct, count


def pooled(record: Record, cell: Cell, scored: str) -> float:
    """Return the accuracy in percent over the pictures of all test domains, so that large domains have more weight."""
    by_domain = [counts(record, domain, scored) for domain in cell.test]
    return 100 * sum(c for c, _ in by_domain) / sum(n for _, n in by_domain)


def mean_of_domains(record: Record, cell: Cell, scored: str) -> float:
    """Return the mean of the test domains' accuracies in percent, with equal weight for all domains."""
    return fmean(100 * c / n for c, n in (counts(record, domain, scored) for domain in cell.test))


def validation(record: Record, domains: Sequence[str]) -> float:
    """Return the mean of the domains' accuracies on the split "val", in percent."""
    if empty := [domain for domain in domains if not record["val"][domain][1]]:
        raise ValueError(f"the records hold no validation pictures of {', '.join(empty)}; choose another selection rule")
    return fmean(100 * c / n for c, n in (record["val"][domain] for domain in domains))


Score = Callable[[Record, Cell, str], float]  # record, cell, scored part of the test domains -> percent

SCORES: Mapping[str, Score] = {
    "pooled": pooled,
    "mean of domains": mean_of_domains,
    VALIDATION: lambda record, cell, scored: validation(record, cell.train),  # for choosing settings
}


class Spread(NamedTuple):
    """A measure of spread after the ±: its name in captions, its name in CSV, and the function of two or more values."""

    words: str
    short: str
    of: Callable[[Sequence[float]], float]


STDS: Mapping[str, Spread] = {
    "population": Spread("population standard deviation (divided by n, as in the paper)", "population std", pstdev),
    "sample": Spread("sample standard deviation (divided by n - 1)", "sample std", stdev),
    "error": Spread("standard error of the mean", "standard error", standard_error),
}


class Candidates(NamedTuple):
    """All complete runs of a row for one cell and seed.

    ``runs`` maps a combination of the grid to the records of its run, by increasing step. ``pairs`` maps it to
    ``{domain: records}`` of the runs that were also trained without ``domain``. ``scored`` is the protocol's.
    """

    cell: Cell
    runs: Mapping[str, Records]
    pairs: Mapping[str, Mapping[str, Records]]
    scored: str = "all"


@dataclass(frozen=True)
class Selection:
    """One rule. ``criterion(candidates, hparams, record)`` is maximized; it is None if it cannot be computed.

    ``uses`` is what the rule depends on: the split "val" of the "train" or of the "test" domains, "pairs" for runs without
    two domains, or "nothing". A table lists every combination of a grid if the rule uses nothing, otherwise the chosen one.
    """

    about: str
    criterion: Callable[[Candidates, str, Record], float | None]
    steps: Literal["last", "every"]  # the evaluations that may be chosen
    uses: Literal["nothing", "train", "test", "pairs"]

    @property
    def scored(self) -> Literal["rest"] | None:
        """The scored part of the test domains: without "val" if the rule uses it, None for that of the protocol."""
        return "rest" if self.uses == "test" else None

    def choose(self, candidates: Candidates) -> tuple[str, Record]:
        """Return the hyperparameters and the record of the evaluation with the highest criterion."""
        rated = [
            (value, hparams, record)
            for hparams, records in candidates.runs.items()
            for record in (records if self.steps == "every" else records[-1:])
            if (value := self.criterion(candidates, hparams, record)) is not None
        ]
        if not rated:
            raise ValueError("no step was evaluated in all runs; evaluate them at the same steps")
        return max(rated, key=itemgetter(0))[1:]  # the first of equal values


def _domains_left_out(candidates: Candidates, hparams: str, record: Record) -> float | None:
    """Return the mean, over the training domains, of the accuracy of the run trained without that domain."""
    accuracies = []
    for domain in candidates.cell.train:
        same = [r for r in candidates.pairs[hparams][domain] if r["step"] == record["step"]]
        if not same:
            return None
        correct, count = counts(same[0], domain, candidates.scored)
        accuracies.append(100 * correct / count)
    return fmean(accuracies)


SELECTIONS: Mapping[str, Selection] = {
    "last": Selection("last step, no selection", lambda candidates, hparams, record: 0.0, "last", uses="nothing"),
    VALIDATION: Selection(
        "step and hyperparameters with the best mean accuracy on held-out pictures of the training domains",
        lambda candidates, hparams, record: validation(record, candidates.cell.train), "every", uses="train",
    ),
    "leave-one-domain-out cross-validation": Selection(
        "step and hyperparameters that do best on training domains when these are left out, one at a time",
        _domains_left_out, "every", uses="pairs",
    ),
    "oracle": Selection(
        "last step; hyperparameters chosen on held-out pictures of the test domains, which are not scored",
        lambda candidates, hparams, record: validation(record, candidates.cell.test), "last", uses="test",
    ),
}  # fmt: skip
