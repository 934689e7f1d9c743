"""Whether one method is better than another, said with its error.

Two methods are compared on equal terms: the same seed and the same column. A table asks which is better on average over
these domains, so the domains are taken as they are and the seeds are what is repeated: runs of one seed share their first
weights and their draws, and most of their pictures. Every seed therefore counts once, by its average over the columns. A
difference is decided when the mean of these is further from zero than chance would bring it in one of twenty such studies
(Student's t with one degree of freedom less than seeds, two-sided 95 %), and with fewer than three seeds never.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from efdm.lab.results import Numbers
from efdm.lab.scores import standard_error
from efdm.text import plural

Verdict = Literal["higher", "lower", "inconclusive", "incomplete"]
SEEDS = 3  # with fewer, one seed that is like another would decide

# degrees of freedom -> 97.5 % quantile of Student's t; between two rows, the one above (more cautious) is used
T95: Mapping[int, float] = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201,
    12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 17: 2.110, 19: 2.093, 23: 2.069, 29: 2.045, 39: 2.023, 59: 2.001, 119: 1.980,
}  # fmt: skip


def t95(freedom: int) -> float:
    return T95[max(known for known in T95 if known <= freedom)]


@dataclass(frozen=True)
class Difference:
    """``second`` minus ``first`` in percent points over ``pairs`` of (column, seed).

    ``error`` is the standard error of the seeds' averages over the columns; the verdict is taken from it.
    ``error_of_pairs`` is that of all pairs as if they were independent: it is too small where the runs of a seed go up and
    down together, and too large where one domain gains more than another. Neither tells of further domains: for that, a
    handful is too few.
    """

    first: str
    second: str
    mean: float
    error: float
    error_of_pairs: float
    pairs: int
    asked: int
    seeds: int
    better: int  # pairs in which the second is better
    by_column: Mapping[str, float]

    @property
    def verdict(self) -> Verdict:
        if self.pairs < self.asked or self.asked == 0:
            return "incomplete"
        if self.seeds < SEEDS or not abs(self.mean) > t95(self.seeds - 1) * self.error:
            return "inconclusive"
        return "higher" if self.mean > 0 else "lower"


def difference(numbers: Numbers, first: str, second: str) -> Difference:
    """Compare two rows."""
    found, asked = numbers.pairs(first, second)
    values, seeds = list(found.values()), sorted({seed for _, seed in found})
    averages = [statistics.fmean(v for (_, s), v in found.items() if s == seed) for seed in seeds]
    by_column = {
        column: statistics.fmean(v for (c, _), v in found.items() if c == column)
        for column in numbers.columns
        if any(c == column for c, _ in found)
    }
    return Difference(
        first,
        second,
        statistics.fmean(values) if values else math.nan,
        standard_error(averages),
        standard_error(values),
        len(values),
        asked,
        len(seeds),
        sum(v > 0 for v in values),
        by_column,
    )


# --- sentences -------------------------------------------------------------------------------------------------------


def order_sentence(differences: Sequence[Difference]) -> str:
    """Whether a claimed order holds: each row better than the one before."""
    chain = " < ".join([differences[0].first, *(d.second for d in differences)])
    verdicts = [d.verdict for d in differences]
    seeds = min(d.seeds for d in differences)
    if "incomplete" in verdicts:
        head = f"The order {chain} cannot be judged yet"
    elif "lower" in verdicts:
        head = f"The order {chain} does not hold"
    elif "inconclusive" in verdicts:
        head = f"The order {chain} is inconclusive at {plural(seeds, 'seed')}"
    else:
        head = f"The order {chain} holds at {plural(seeds, 'seed')}"
    return f"{head}: {'; '.join(map(_said, differences))}."


def contrast_sentence(d: Difference) -> str:
    """What changes from one row to another, with nothing claimed."""
    words = {
        "higher": f"{d.second} is better than {d.first}",
        "lower": f"{d.second} is worse than {d.first}",
        "inconclusive": f"Between {d.first} and {d.second} no difference can be told at {plural(d.seeds, 'seed')}",
        "incomplete": f"{d.first} and {d.second} cannot be compared yet",
    }
    return f"{words[d.verdict]}: {_said(d)}."


def _said(d: Difference) -> str:
    if d.verdict == "incomplete":
        return f"{d.second} - {d.first}: {d.pairs} of {d.asked} pairs are there"
    error = "without an error" if math.isnan(d.error) else f"± {d.error:.2f} (standard error, {d.seeds} seeds)"
    return f"{d.second} - {d.first} = {d.mean:+.2f} {error}, {d.verdict}"


def chains(numbers: Numbers, orders: Sequence[Sequence[str]]) -> list[list[Difference]]:
    """The differences of neighbours in every order whose rows are all there."""
    known = [chain for chain in orders if set(chain) <= set(numbers.rows)]
    return [[difference(numbers, a, b) for a, b in pairwise(chain)] for chain in known]


def unjudged_sentences(numbers: Numbers, orders: Sequence[Sequence[str]], contrasts: Sequence[tuple[str, str]]) -> list[str]:
    """One at most: which orders and contrasts cannot be made, as rows of them are not in the table."""
    asked = [(f"The order {' < '.join(chain)} cannot be judged", chain) for chain in orders]
    asked += [(f"{a} and {b} cannot be compared", (a, b)) for a, b in contrasts]
    unjudged = [(words, rows) for words, rows in asked if not set(rows) <= set(numbers.rows)]
    lacking = list(dict.fromkeys(row for _, rows in unjudged for row in rows if row not in numbers.rows))
    if not unjudged:
        return []
    words = (
        unjudged[0][0] if len(unjudged) == 1 else f"{len(unjudged)} of {len(asked)} orders and contrasts cannot be judged"
    )
    return [f"{words}: there is no row {', '.join(lacking)}."]
