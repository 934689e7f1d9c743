"""What is said of one evaluation, and of one number for each seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from efdm.dg.protocols import Cell

Record = Mapping[str, Any]
VALIDATION = "training-domain validation"


def counts(record: Record, domain: str, scored: str) -> tuple[int, int]:
    """Correct and all pictures of a test domain: of "all", or of the "rest" without "val". What a domain keeps ``apart`` for
    tests has nothing of "val"."""
    correct, count = record["test"][domain]
    if scored == "rest" and domain not in record.get("official_test", ()):
        seen_correct, seen = record["val"][domain]
        correct, count = correct - seen_correct, count - seen
    if count < 1:
        raise ValueError(f"no pictures of {domain} are left to score in run {record['run']}; make its 'val' smaller")
    return correct, count


def pooled(record: Record, cell: Cell, scored: str) -> float:
    """Correct pictures of all test domains together, by all of them: a large domain counts more. In percent."""
    found = [counts(record, domain, scored) for domain in cell.test]
    return 100 * sum(c for c, _ in found) / sum(n for _, n in found)


def mean_of_domains(record: Record, cell: Cell, scored: str) -> float:
    """The accuracy in every test domain, and the mean of those: all domains count the same. In percent."""
    return statistics.fmean(100 * c / n for c, n in (counts(record, domain, scored) for domain in cell.test))


def validation(record: Record, domains: Sequence[str]) -> float:
    """The mean of the domains' accuracies on "val". In percent."""
    found = [record["val"][domain] for domain in domains]
    if not all(n for _, n in found):
        raise ValueError(f"run {record['run']} has no 'val' pictures in {', '.join(domains)}; split off a share for it")
    return statistics.fmean(100 * c / n for c, n in found)


# name -> accuracy of a training in percent
SCORES: Mapping[str, Callable[[Record, Cell, str], float]] = {
    "pooled": pooled,
    "mean of domains": mean_of_domains,
    VALIDATION: lambda record, cell, scored: validation(record, cell.train),  # for choosing settings
}


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; NaN for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


class Spread(NamedTuple):
    """What follows a ±: the words of a caption, those over a column for programs, and the function of two values or more."""

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
