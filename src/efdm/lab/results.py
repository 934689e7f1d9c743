"""From records to numbers: one score per row, column and seed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from efdm.lab.folder import Study
from efdm.lab.plan import Planned, hparam_grid
from efdm.lab.protocols import Cell
from efdm.lab.selection import SELECTIONS, Candidates, Selection
from efdm.ops.choices import check_choice


@dataclass(frozen=True)
class Numbers:
    """Scores in percent, ``scores[row][column][seed]``; ``seeds[row][column]`` lists the planned seeds.

    ``chosen`` has the layout of ``scores`` and holds the hyperparameters that the selection rule chose.
    """

    rows: list[str]
    columns: list[str]
    scores: Mapping[str, Mapping[str, Mapping[int, float]]]
    seeds: Mapping[str, Mapping[str, list[int]]]
    chosen: Mapping[str, Mapping[str, Mapping[int, str]]] = field(default_factory=dict)

    def averages(self, row: str) -> dict[int, float]:
        """Return the mean over columns for each seed that every column has."""
        by_column = [self.scores[row][column] for column in self.columns]
        common = sorted(set.intersection(*map(set, by_column)))
        return {seed: statistics.fmean(scores[seed] for scores in by_column) for seed in common}

    def differences(self, first: str, second: str) -> tuple[dict[tuple[str, int], float], int]:
        """Return second minus first by (column, seed), and the number of pairs of a complete comparison.

        It has every common seed in every column of the table, so that all seeds average over the same domains.
        """
        planned = [
            (column, seed)
            for column in self.columns
            for seed in self.seeds[first].get(column, [])
            if seed in self.seeds[second].get(column, [])
        ]
        a, b = self.scores[first], self.scores[second]
        differences = {(c, s): b[c][s] - a[c][s] for c, s in planned if s in a[c] and s in b[c]}
        return differences, len(self.columns) * len({seed for _, seed in planned})


def numbers(study: Study, selection: str = "last", score: str = "pooled") -> Numbers:
    """Return the scores of the records that a selection rule chooses. A number needs every run that the rule depends on."""
    check_choice("selection", selection, study.recipe.selections)
    check_choice("score", score, study.recipe.task_row.scores)
    score_of = study.recipe.task_row.scores[score]
    rule, protocol = SELECTIONS[selection], study.recipe.protocol_row
    groups: dict[tuple[str, str, int], list[Planned]] = {}  # the candidate runs of each number
    for planned in reported_runs(study):
        row = row_name(planned) if rule.uses == "nothing" else planned.row
        groups.setdefault((row, protocol.column(planned.cell), planned.seed), []).append(planned)
    rows = list(dict.fromkeys(row for row, _, _ in groups))
    # including columns that were not run: an average must cover the same domains
    columns = [protocol.column(cell) for cell in protocol.cells(study.domains)]
    scores: dict[str, dict[str, dict[int, float]]] = {row: {column: {} for column in columns} for row in rows}
    seeds: dict[str, dict[str, list[int]]] = {row: {} for row in rows}
    chosen: dict[str, dict[str, dict[int, str]]] = {row: {} for row in rows}
    for (row, column, seed), group in groups.items():
        seeds[row].setdefault(column, []).append(seed)
        candidates = _candidates(study, rule, group, protocol.scored)
        if candidates is not None:
            hparams, record = rule.choose(candidates)
            scores[row][column][seed] = score_of(record, candidates.cell, rule.scored or protocol.scored)
            chosen[row].setdefault(column, {})[seed] = hparams
    return Numbers(rows, columns, scores, seeds, chosen)


def row_name(planned: Planned) -> str:
    """Return the row's name in a table that lists every combination of the grid."""
    return f"{planned.row}, {planned.hparams}" if planned.hparams else planned.row


def reported_runs(study: Study) -> list[Planned]:
    """Return the runs that tables report, in the recipe's order, without those that only cross-validation needs."""
    rows, grid = list(study.recipe.rows), list(hparam_grid(study.recipe))
    single = (planned for planned in study.plan if not _is_pair(study, planned.cell))
    return sorted(single, key=lambda planned: (rows.index(planned.row), grid.index(planned.hparams), planned.seed))


def _is_pair(study: Study, cell: Cell) -> bool:
    """Return True for a run that leaves out a second domain, which only cross-validation needs."""
    return study.recipe.protocol_row.columns == "test" and len(cell.test) > 1


def _candidates(study: Study, rule: Selection, group: list[Planned], scored: str) -> Candidates | None:
    """Return everything that the rule depends on, or None if a run is missing."""
    first, cell = group[0], group[0].cell
    if any(planned.run not in study.runs for planned in group):
        return None
    pairs: dict[str, dict[str, list[dict[str, object]]]] = {planned.hparams: {} for planned in group}
    if rule.uses == "pairs":
        for other in study.plan:
            same = (other.row, other.seed) == (first.row, first.seed) and _is_pair(study, other.cell)
            if same and set(cell.test) < set(other.cell.test) and other.run in study.runs:
                (domain,) = set(other.cell.test) - set(cell.test)
                pairs[other.hparams][domain] = study.runs[other.run]
        if any(set(by_domain) != set(cell.train) for by_domain in pairs.values()):
            return None
    return Candidates(cell, {planned.hparams: study.runs[planned.run] for planned in group}, pairs, scored)
