"""From records to numbers: an accuracy for every row, column and seed, and what is missing of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from efdm.dg.protocols import PROTOCOLS, Cell
from efdm.lab.plan import Planned, hparam_grid
from efdm.lab.scores import SCORES
from efdm.lab.selection import SELECTIONS, Candidates, Selection
from efdm.lab.sweep import Study
from efdm.ops.choices import check_choice


@dataclass(frozen=True)
class Numbers:
    """``found[row][column][seed]`` in percent; ``wanted[row][column]`` are the seeds that were asked for. ``chosen`` is like
    ``found`` and tells the setting of the grid that the rule chose."""

    rows: list[str]
    columns: list[str]
    found: Mapping[str, Mapping[str, Mapping[int, float]]]
    wanted: Mapping[str, Mapping[str, list[int]]]
    chosen: Mapping[str, Mapping[str, Mapping[int, str]]] = field(default_factory=dict)

    def averages(self, row: str) -> dict[int, float]:
        """The mean over the columns, for each seed that every column has."""
        seeds = set.intersection(*(set(self.found[row].get(column, {})) for column in self.columns))
        return {seed: statistics.fmean(self.found[row][column][seed] for column in self.columns) for seed in sorted(seeds)}

    def pairs(self, first: str, second: str) -> tuple[dict[tuple[str, int], float], int]:
        """Second minus first for every (column, seed) that was asked of both and is there, and how many there should be:
        every seed in every column of the table, so that all averages are of the same domains, and of all of them."""
        asked = [
            (column, seed)
            for column in self.columns
            for seed in self.wanted[first].get(column, [])
            if seed in self.wanted[second].get(column, [])
        ]
        a, b = self.found[first], self.found[second]
        there = [(column, seed) for column, seed in asked if seed in a[column] and seed in b[column]]
        whole = len(self.columns) * len({seed for _, seed in asked})
        return {(column, seed): b[column][seed] - a[column][seed] for column, seed in there}, whole


def numbers(study: Study, selection: str = "last", score: str = "pooled") -> Numbers:
    """What one selection rule makes of the records. A number needs every training that its rule looks at."""
    check_choice("selection", selection, study.recipe.selections)
    check_choice("score", score, SCORES)
    rule, protocol = SELECTIONS[selection], PROTOCOLS[study.recipe.protocol]
    groups = _groups(study, rule)
    rows = list(dict.fromkeys(row for row, _, _ in groups))
    columns = list(study.domains)  # also those that were not asked for: an average without them would be another
    found: dict[str, dict[str, dict[int, float]]] = {row: {column: {} for column in columns} for row in rows}
    wanted: dict[str, dict[str, list[int]]] = {row: {} for row in rows}
    chosen: dict[str, dict[str, dict[int, str]]] = {row: {} for row in rows}
    scored = protocol.scored if rule.scored == "protocol" else rule.scored
    for (row, column, seed), group in groups.items():
        wanted[row].setdefault(column, []).append(seed)
        candidates = _candidates(study, rule, group, protocol.scored)
        if candidates is not None:
            choice = rule.choose(candidates)
            found[row][column][seed] = SCORES[score](choice.record, candidates.cell, scored)
            chosen[row].setdefault(column, {})[seed] = choice.hparams
    return Numbers(rows, columns, found, wanted, chosen)


def _groups(study: Study, rule: Selection) -> dict[tuple[str, str, int], list[Planned]]:
    """The trainings among which a number is chosen, by (row of the table, column, seed)."""
    listed = PROTOCOLS[study.recipe.protocol].column
    made: dict[tuple[str, str, int], list[Planned]] = {}
    for planned in tabled(study):
        row = row_name(planned) if rule.among == "nothing" else planned.row
        made.setdefault((row, listed(planned.cell), planned.seed), []).append(planned)
    return made


def row_name(planned: Planned) -> str:
    """Of a table in which every setting of the grid has a row."""
    return f"{planned.row}, {planned.hparams}" if planned.hparams else planned.row


def tabled(study: Study) -> list[Planned]:
    """The trainings that numbers are taken from, in the order of the recipe: all but those for cross-validation alone."""
    rows, grid = list(study.recipe.rows), list(hparam_grid(study.recipe))

    def place(planned: Planned) -> tuple[int, int, int]:
        return rows.index(planned.row), grid.index(planned.hparams), planned.seed

    return sorted((planned for planned in study.plan if not _is_pair(study, planned.cell)), key=place)


def _is_pair(study: Study, cell: Cell) -> bool:
    """Whether a training leaves out a second domain, for cross-validation alone."""
    return study.recipe.listed == "test" and len(cell.test) > 1


def _candidates(study: Study, rule: Selection, group: list[Planned], scored: str) -> Candidates | None:
    """Everything that the rule looks at, or None when some of it is missing."""
    cell, row, seed = group[0].cell, group[0].row, group[0].seed
    if any(planned.run not in study.runs for planned in group):
        return None
    pairs: dict[str, dict[str, list[dict[str, object]]]] = {planned.hparams: {} for planned in group}
    if rule.pairs == "needed":
        for other in study.plan:
            if (
                _is_pair(study, other.cell)
                and set(cell.test) < set(other.cell.test)
                and (other.row, other.seed) == (row, seed)
            ):
                (domain,) = set(other.cell.test) - set(cell.test)
                pairs[other.hparams] |= {domain: study.runs[other.run]} if other.run in study.runs else {}
        if any(set(found) != set(cell.train) for found in pairs.values()):
            return None
    return Candidates(cell, {planned.hparams: study.runs[planned.run] for planned in group}, pairs, scored)
