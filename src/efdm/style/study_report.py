"""Evaluate the votes of a preference study: shares, Bradley-Terry strengths, agreement and disputed pictures.

A vote for one of k outputs follows Luce's model: output i wins with probability w_i / sum(w). For two outputs this is the
model of Bradley and Terry. Strengths are fitted by Hunter's MM algorithm (2004), with one virtual win and one virtual loss
of every candidate against an opponent of strength 1, so that they stay finite.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from efdm.data import read_picture, write_picture
from efdm.data.images import write_bytes
from efdm.data.sheets import sheet
from efdm.errors import SettingError
from efdm.style.study import Study, Vote
from efdm.text import markdown_table, plural

Array = NDArray[np.float64]
RESAMPLES = 1000
STEPS = 100  # of the MM algorithm; it converges in fewer
DISPUTED = 6  # rows of the sheet
LEVEL = 95  # of the confidence intervals, in percent


class Interval(NamedTuple):
    """An estimate and its confidence interval."""

    value: float
    low: float
    high: float


class Result(NamedTuple):
    """The result of one candidate. ``shown`` and ``won`` count votes; ``strength`` is a natural logarithm."""

    label: str
    shown: int
    won: int
    share: Interval
    strength: Interval


def results(study: Study, votes: Sequence[Vote]) -> list[Result]:
    """Return the candidates from the strongest to the weakest, with bootstrap intervals over raters and items."""
    labels = list(study.candidates)
    patterns = list(dict.fromkeys(tuple(study.items[v.item].outputs) for v in votes))
    shown = np.array([[label in pattern for label in labels] for pattern in patterns], dtype=float)
    pattern_of = [patterns.index(tuple(study.items[v.item].outputs)) for v in votes]
    cells = np.array([p * len(labels) + labels.index(v.choice) for p, v in zip(pattern_of, votes, strict=True)])
    raters, rater_of = np.unique([v.rater for v in votes], return_inverse=True)
    items, item_of = np.unique([v.item for v in votes], return_inverse=True)

    def wins(weights: Array) -> Array:
        """Return the weighted wins by pattern and candidate."""
        return np.bincount(cells, weights, shown.size).astype(np.float64).reshape(shown.shape)

    def estimate(counts: Array) -> Array:
        """Return shares and strengths ``(..., 2, candidates)`` of wins ``(..., patterns, candidates)``."""
        seen = np.maximum((shown * counts.sum(-1, keepdims=True)).sum(-2), 1e-9)
        return np.stack([counts.sum(-2) / seen, fit_strengths(counts, shown)], axis=-2)

    whole = wins(np.ones(len(votes)))
    draw = np.random.default_rng(0)
    # raters and items are resampled independently (Owen 2007), because both vary
    by_rater = draw.multinomial(len(raters), [1 / len(raters)] * len(raters), RESAMPLES)
    by_item = draw.multinomial(len(items), [1 / len(items)] * len(items), RESAMPLES)
    weights = (by_rater[:, rater_of] * by_item[:, item_of]).astype(float)
    resampled = estimate(np.stack([wins(row) for row in weights if row.any()]))
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail], axis=0)
    point, times = estimate(whole), (shown * whole.sum(1, keepdims=True)).sum(0)
    ranking = []
    for i, label in enumerate(labels):
        share, strength = (Interval(float(point[k, i]), float(low[k, i]), float(high[k, i])) for k in (0, 1))
        ranking.append(Result(label, round(times[i]), round(whole[:, i].sum()), share, strength))
    return sorted(ranking, key=lambda result: -result.strength.value)


def fit_strengths(wins: Array, shown: Array) -> Array:
    """Return the logarithms of the strengths ``(..., candidates)``, with mean 0.

    ``wins`` ``(..., patterns, candidates)`` counts votes; ``shown`` ``(patterns, candidates)`` is 1 where a pattern shows a
    candidate.
    """
    votes, won = wins.sum(-1, keepdims=True), wins.sum(-2)
    strengths = np.ones_like(won)
    for _ in range(STEPS):
        expected = (votes * shown / (shown * strengths[..., None, :]).sum(-1, keepdims=True)).sum(-2)
        strengths = (won + 1) / (expected + 2 / (strengths + 1))
        strengths /= np.exp(np.log(strengths).mean(-1, keepdims=True))
    return np.log(strengths)


def agreement(study: Study, votes: Sequence[Vote]) -> tuple[float, float]:
    """Return the fraction of agreeing votes among all pairs of raters of an item, and Fleiss' kappa.

    Kappa is 0 for agreement by chance, given how often each candidate wins. Both are NaN without two votes on an item.
    """
    by_pattern: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for vote in votes:
        by_pattern[tuple(study.items[vote.item].outputs)][vote.choice] += 1
    agreed = chance = total = 0.0
    for item, counts in _by_item(votes).items():
        n = counts.total()
        marginal = by_pattern[tuple(study.items[item].outputs)]
        agreed += sum(c * (c - 1) for c in counts.values())
        chance += n * (n - 1) * sum((c / marginal.total()) ** 2 for c in marginal.values())
        total += n * (n - 1)
    if not total:
        return float("nan"), float("nan")
    return agreed / total, (agreed - chance) / (total - chance) if total > chance else float("nan")


def disputed(study: Study, votes: Sequence[Vote]) -> list[tuple[int, Counter[str]]]:
    """Return the items with at least two votes on which raters agree least, with their votes by candidate."""
    shared = [(item, counts) for item, counts in _by_item(votes).items() if len(counts) > 1]
    return sorted(shared, key=lambda row: (max(row[1].values()) / row[1].total(), -row[1].total(), row[0]))[:DISPUTED]


def _by_item(votes: Sequence[Vote]) -> dict[int, Counter[str]]:
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for vote in votes:
        counts[vote.item][vote.choice] += 1
    return counts


def report(study: Study) -> str:
    """Return a Markdown report of all votes."""
    votes = study.votes()
    if not votes:
        raise SettingError(f"{study.folder} has no votes yet; serve the study and ask people to vote", "study")
    rows = [
        [r.label, f"{r.won} of {r.shown}", _interval(r.share, ".0%"), _interval(r.strength, "+.2f")]
        for r in results(study, votes)
    ]
    same, kappa = agreement(study, votes)
    raters = len({vote.rater for vote in votes})
    table = markdown_table(["candidate", "chosen", f"share ({LEVEL} % interval)", "Bradley-Terry log strength"], rows)
    return (
        f"{plural(len(votes), 'vote')} of {plural(raters, 'rater')} on {plural(len(study.items), 'item')}.\n\n{table}\n\n"
        f"Raters of the same item agree in {_number(same, '.0%')} of all cases; Fleiss' kappa is {_number(kappa, '.2f')}. "
        "Intervals are percentiles of a bootstrap over raters and items.\n"
    )


def write_report(study: Study) -> list[Path]:
    """Write report.md, votes.csv and, if raters disagree, disputed.png into the folder of the study."""
    written = [study.folder / "report.md", study.folder / "votes.csv"]
    written[0].write_text(report(study))
    write_bytes(written[1], study.csv().encode())
    if rows := disputed(study, study.votes()):
        written.append(study.folder / "disputed.png")
        write_picture(written[-1], _sheet(study, rows))
    return written


def _sheet(study: Study, rows: Sequence[tuple[int, Counter[str]]]) -> Tensor:
    labels = list(study.candidates)
    lines: list[list[Tensor | None]] = []
    for number, _ in rows:
        item = study.items[number]
        files = [item.content_file, item.style_file, *(item.outputs.get(label) for label in labels)]
        lines.append([None if file is None else read_picture(study.folder / "pictures" / file).rgb for file in files])
    votes = [" : ".join(str(counts[label]) for label in study.items[item].outputs) for item, counts in rows]
    return sheet(lines, row_labels=votes, column_labels=["content", "style", *labels], title="Disputed pictures")


def _interval(interval: Interval, form: str) -> str:
    value, low, high = (format(number, form) for number in interval)
    return f"{value} ({low} to {high})"


def _number(value: float, form: str) -> str:
    return "-" if value != value else format(value, form)
