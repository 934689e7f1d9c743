"""From a recipe to its runs: one for each row, cell, seed and combination of the grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from efdm.errors import SettingError
from efdm.lab.draws import DRAWN, drawn
from efdm.lab.protocols import Cell
from efdm.lab.recipe import Recipe
from efdm.lab.selection import SELECTIONS
from efdm.lab.tasks import FIXED
from efdm.ops.choices import check_choice
from efdm.recognition.settings import RecognitionSettings, identity, resolved
from efdm.training.settings import public


@dataclass(frozen=True)
class Planned:
    """A run that a table needs.

    ``hparams`` is the display name of its combination of the grid, ``run`` the identity of its settings.
    """

    row: str
    hparams: str
    cell: Cell
    seed: int
    run: str
    settings: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, str, Cell, int]:
        """The position of its number in the tables."""
        return self.row, self.hparams, self.cell, self.seed


def expand(
    recipe: Recipe,
    domains: Sequence[str],
    *,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    **changes: Any,
) -> list[tuple[Planned, Any]]:
    """Return all runs of a recipe on a data set with these ``domains``, or those of some seeds, methods or columns.

    Settings are merged in this order, and later ones override earlier ones: defaults, the method's sampler, protocol,
    recipe, column, row, grid, ``changes``.
    """
    for row in methods or ():
        check_choice("methods", row, recipe.rows)
    for column in columns or ():
        check_choice("domains", column, domains)
    for column in recipe.columns:
        check_choice("columns", column, domains)
    if fixed := sorted({*FIXED, "method", *recipe.grid, *(DRAWN if recipe.draws else ())} & set(changes)):
        raise SettingError(f"{', '.join(fixed)} cannot be overridden: the recipe sets it; write your own recipe", fixed)
    protocol = recipe.protocol_row
    cells = protocol.cells(domains)
    if any(SELECTIONS[name].uses == "pairs" for name in recipe.selections):
        cells += protocol.validation_cells(domains)
    cells = [c for c in cells if columns is None or set(columns) & set(getattr(c, protocol.columns))]
    rows = [row for row in recipe.rows if methods is None or row in methods]
    grid = enumerate(hparam_grid(recipe).items())
    runs = []
    # seeds vary slowest, so that an interrupted sweep has complete tables of fewer seeds
    seeds = recipe.seeds if seeds is None else seeds
    for seed, row, (draw, (hparams, combination)), cell in product(seeds, rows, grid, cells):
        if recipe.draws:
            combination = drawn(draw, seed, recipe.rows[row].get("method", row), cell)
        settings = resolved(_settings(recipe, row, cell, seed, combination, changes))
        runs.append((Planned(row, hparams, cell, seed, identity(settings), public(settings)), settings))
    return runs


def hparam_grid(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Return every combination of the grid by its display name; without a grid, one empty combination.

    Draws have names only, because their values depend on the seed.
    """
    if recipe.draws:
        return {f"draw {number}": {} for number in range(recipe.draws)}
    combinations = [dict(zip(recipe.grid, values, strict=True)) for values in product(*recipe.grid.values())]
    return {", ".join(f"{name} {display(value)}" for name, value in each.items()): each for each in combinations}


def display(value: Any) -> str:
    """Return a value as text; floats get as few digits as represent them exactly."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _settings(
    recipe: Recipe, row: str, cell: Cell, seed: int, combination: Mapping[str, Any], changes: Mapping[str, Any]
) -> RecognitionSettings:
    protocol, own = recipe.protocol_row, recipe.rows[row]
    method = own.get("method", row)
    # stored size and splits determine the pictures, so they are part of the data set's name and of the identity
    stored = f", kept at {recipe.picture_size} px" if recipe.picture_size and "size" not in changes else ""
    side = getattr(cell, protocol.columns)
    column = recipe.columns.get(side[0], {}) if len(side) == 1 else {}
    return recipe.task_row.settings(**{
        **recipe.task_row.method_settings(method, cell),
        **protocol.settings_for(cell),
        **recipe.settings,
        **column,
        **own,
        **combination,
        **changes,
        "method": method,
        "data": recipe.data + stored + protocol.split_words,
        "train_domains": cell.train,
        "test_domains": cell.test,
        "seed": seed,
    })  # fmt: skip


def merged(plan: Iterable[Planned], more: Iterable[Planned], recipe: Recipe) -> list[Planned]:
    """Return both plans merged, without duplicates. Raise a SettingError if runs of a row were started differently."""
    by_place = {planned.place: planned for planned in plan}
    by_group = {_group(planned, recipe): planned for planned in by_place.values()}
    varying = {*FIXED, *recipe.task_row.settings.movable} - {"data"}
    for planned in more:
        same_place = by_place.setdefault(planned.place, planned)
        same_group = by_group.setdefault(_group(planned, recipe), planned)
        before = (same_group if same_place.run == planned.run else same_place).settings
        names = [name for name in planned.settings if name in before and name not in varying]
        differing = [k for k in names if _as_json(planned.settings[k]) != _as_json(before[k])]
        if differing or same_place.run != planned.run:
            words = ", ".join(f"{k} {before[k]}, not {planned.settings[k]}" for k in differing)
            problem = f"{planned.row} was started with {words or 'other settings'}"
            raise SettingError(f"{problem}; use these settings or another folder", differing)
    return list(by_place.values())


def _group(planned: Planned, recipe: Recipe) -> tuple[object, ...]:
    """Return a key that is equal for runs with equal settings, apart from domains and seed, in one sweep."""
    cell = planned.cell if recipe.columns else (len(planned.cell.train), len(planned.cell.test))
    return planned.row, planned.hparams, cell, recipe.draws and planned.seed


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def plan_as_json(plan: Sequence[Planned]) -> dict[str, Any]:
    """Return the settings that all runs share, and for each run its place and its other settings."""
    all_settings = [_as_json(dict(planned.settings)) for planned in plan]
    common = {k: v for k, v in (all_settings[0] if plan else {}).items() if all(s.get(k) == v for s in all_settings)}
    runs = []
    for planned, settings in zip(plan, all_settings, strict=True):
        rest = {k: v for k, v in settings.items() if k not in common}
        place = {"row": planned.row, "hparams": planned.hparams, "train": planned.cell.train, "test": planned.cell.test}
        runs.append({"run": planned.run, **place, "seed": planned.seed, "settings": rest})
    return {"settings": common, "runs": runs}


def plan_from_json(content: Mapping[str, Any]) -> list[Planned]:
    """Return the plan that `plan_as_json` described."""
    return [
        Planned(
            run["row"], run["hparams"], Cell(tuple(run["train"]), tuple(run["test"])), run["seed"], run["run"],
            {**content["settings"], **run["settings"]},
        )
        for run in content["runs"]
    ]  # fmt: skip
