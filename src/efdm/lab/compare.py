"""Paired comparison of two rows of a table, with p-values.

Rows are compared at equal seed and column. Domains are treated as fixed and seeds as the repeated measurement: every seed
counts once, by its average over the columns, because the runs of a seed share their initial weights, their random draws and
most of their pictures. The p-value is that of a two-sided paired t-test over seeds, corrected by Holm's method for all
comparisons of a table. A difference is significant if the corrected p-value is below `ALPHA` and `MIN_SEEDS` seeds were run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from efdm.lab.folder import Study
from efdm.lab.results import Numbers, numbers
from efdm.stats import standard_error, with_error

Verdict = Literal["significant", "inconclusive", "incomplete"]
ALPHA = 0.05
MIN_SEEDS = 3  # with two seeds, the spread is too often small by chance


@dataclass(frozen=True)
class Difference:
    """``second`` minus ``first`` in percentage points, over ``pairs`` of ``expected`` pairs (column, seed).

    ``error`` is the standard error of the mean over seeds. ``better`` counts the pairs in which ``second`` is higher.
    ``p`` is the p-value of this comparison; ``p_holm`` is corrected for all comparisons of a table.
    """

    first: str
    second: str
    mean: float
    error: float
    pairs: int
    expected: int
    seeds: int
    better: int
    by_column: Mapping[str, float]
    p: float
    p_holm: float

    @property
    def name(self) -> str:
        return f"{self.second} - {self.first}"

    @property
    def verdict(self) -> Verdict:
        if self.pairs < self.expected or not self.expected:
            return "incomplete"
        return "significant" if self.p_holm < ALPHA and self.seeds >= MIN_SEEDS else "inconclusive"


def difference(numbers: Numbers, first: str, second: str) -> Difference:
    """Return ``second`` minus ``first``, tested over seeds. ``p_holm`` equals ``p`` until `holm` corrects it."""
    from scipy import stats  # takes a second to import

    pairs, expected = numbers.differences(first, second)
    seeds = sorted({seed for _, seed in pairs})
    averages = [statistics.fmean(v for (_, s), v in pairs.items() if s == seed) for seed in seeds]
    columns = {c: [v for (column, _), v in pairs.items() if column == c] for c in numbers.columns}
    by_column = {column: statistics.fmean(values) for column, values in columns.items() if values}
    mean, error = statistics.fmean(pairs.values()) if pairs else math.nan, standard_error(averages)
    p = 1.0  # also for a single seed
    if len(seeds) > 1 and mean:
        p = float(2 * stats.t.sf(abs(mean) / error if error else math.inf, len(seeds) - 1))
    better = sum(v > 0 for v in pairs.values())
    return Difference(first, second, mean, error, len(pairs), expected, len(seeds), better, by_column, p, p)


def holm(differences: Iterable[Difference]) -> list[Difference]:
    """Return the differences with ``p_holm`` corrected for the number of complete ones (Holm, 1979)."""
    corrected = list(differences)
    complete = sorted((i for i, d in enumerate(corrected) if d.verdict != "incomplete"), key=lambda i: corrected[i].p)
    largest = 0.0
    for place, i in enumerate(complete):
        largest = max(largest, min(1.0, corrected[i].p * (len(complete) - place)))
        corrected[i] = replace(corrected[i], p_holm=largest)
    return corrected


def comparison_parts(study: Study, selection: str = "last") -> dict[str, Numbers]:
    """Return the numbers of the recipe's first score, split into the parts that are compared separately.

    Columns that are directions are one part each. Columns that are domains are compared by their average, as one part.
    """
    every = numbers(study, selection, study.recipe.scores[0])
    if study.recipe.protocol_row.heading == "direction":
        return {column: replace(every, columns=[column]) for column in every.columns}
    return {"": every}


def compared_pairs(orders: Sequence[Sequence[str]], contrasts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the adjacent rows of ``orders`` and the ``contrasts``, each pair once."""
    return list(dict.fromkeys([*(pair for chain in orders for pair in pairwise(chain)), *contrasts]))


def compared(
    parts: Mapping[str, Numbers], orders: Sequence[Sequence[str]], contrasts: Sequence[tuple[str, str]]
) -> dict[str, dict[tuple[str, str], Difference]]:
    """Return the differences of adjacent rows in ``orders`` and of ``contrasts``, for rows that exist, in each part.

    The correction counts the comparisons of all parts.
    """
    pairs = compared_pairs(orders, contrasts)
    present = [(name, pair) for name, part in parts.items() for pair in pairs if set(pair) <= set(part.rows)]
    corrected = dict(zip(present, holm(difference(parts[name], *pair) for name, pair in present), strict=True))
    return {part: {pair: d for (name, pair), d in corrected.items() if name == part} for part in parts}


def order_sentence(differences: Sequence[Difference]) -> str:
    """Return a verdict on a claimed order, in which each row is better than the one before."""
    chain = " < ".join([differences[0].first, *(d.second for d in differences)])
    verdicts = {d.verdict for d in differences}
    if "incomplete" in verdicts:
        return f"Order {chain}: incomplete."
    if any(d.verdict == "significant" and d.mean < 0 for d in differences):
        return f"Order {chain}: contradicted."
    if verdicts == {"significant"}:
        return f"Order {chain}: supported."
    open_steps = ", ".join(d.name for d in differences if d.verdict == "inconclusive")
    return f"Order {chain}: inconclusive ({open_steps})."


def contrast_sentence(d: Difference) -> str:
    """Return a difference with its standard error, p-value and verdict."""
    if d.verdict == "incomplete":
        return f"{d.name}: incomplete, {d.pairs} of {d.expected} pairs."
    tested = "" if math.isnan(d.error) else f" (standard error, {d.seeds} seeds), {p_text(d.p_holm)}"
    return f"{d.name} = {with_error(d.mean, d.error, '+.2f')}{tested}: {d.verdict}."


def p_text(p: float) -> str:
    """Return a p-value as in "p = 0.012"."""
    value = p_value(p)
    return f"p {value}" if value.startswith("<") else f"p = {value}"


def p_value(p: float) -> str:
    """Return a p-value with three digits, or with four if it would round to `ALPHA`."""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}" if round(p, 3) != ALPHA else f"{p:.4f}"
