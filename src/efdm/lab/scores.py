"""Accuracies of one evaluation, and the spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from efdm.dg.protocols import Cell
from efdm.stats import standard_error

Record = Mapping[str, Any]
VALIDATION = "training-domain validation"


def counts(record: Record, domain: str, scored: str) -> tuple[int, int]:
    """Return the numbers of correct and of all pictures of a test domain.

    ``scored="all"`` counts every test picture, ``"rest"`` leaves out the split "val". The official test split of a domain
    contains no picture of "val", so nothing is left out there.
    """
    correct, count = record["test"][domain]
    if scored == "rest" and domain not in record.get("official_test", ()):
        val_correct, val_count = record["val"][domain]
        return correct - val_correct, count - val_count
    return correct, count


def pooled(record: Record, cell: Cell, scored: str) -> float:
    """Return the accuracy in percent over the pictures of all test domains, so that large domains have more weight."""
    found = [counts(record, domain, scored) for domain in cell.test]
    return 100 * sum(c for c, _ in found) / sum(n for _, n in found)


def mean_of_domains(record: Record, cell: Cell, scored: str) -> float:
    """Return the mean of the test domains' accuracies in percent, with equal weight for all domains."""
    return statistics.fmean(100 * c / n for c, n in (counts(record, domain, scored) for domain in cell.test))


def validation(record: Record, domains: Sequence[str]) -> float:
    """Return the mean of the domains' accuracies on the split "val", in percent."""
    return statistics.fmean(100 * c / n for c, n in (record["val"][domain] for domain in domains))


# name -> accuracy of a run in percent
SCORES: Mapping[str, Callable[[Record, Cell, str], float]] = {
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
    "population": Spread(
        "population standard deviation (divided by n, as in the paper)", "population std", statistics.pstdev
    ),
    "sample": Spread("sample standard deviation (divided by n - 1)", "sample std", statistics.stdev),
    "error": Spread("standard error of the mean", "standard error", standard_error),
}
