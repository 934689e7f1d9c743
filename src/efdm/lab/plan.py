"""From a recipe to its trainings: one for each row, cell, seed and setting of the grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from efdm.dg.methods import METHODS, check_method
from efdm.dg.protocols import PROTOCOLS, Cell
from efdm.dg.settings import Settings, identity, public, resolved
from efdm.lab.recipe import Recipe
from efdm.lab.selection import SELECTIONS
from efdm.ops.choices import check_choice


@dataclass(frozen=True)
class Planned:
    """A run that a table needs. ``hparams`` describes its point of the grid, ``run`` is the identity of its settings."""

    row: str
    hparams: str
    cell: Cell
    seed: int
    run: str
    settings: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, str, Cell, int]:
        """Where its number goes."""
        return self.row, self.hparams, self.cell, self.seed


def expand(
    recipe: Recipe,
    domains: Sequence[str],
    *,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    **changes: Any,
) -> list[tuple[Planned, Settings]]:
    """All trainings of a recipe on a set with these ``domains``; some ``seeds``, ``methods`` (rows) or ``columns`` of them.

    Settings come from their defaults, then the sampler that the method wants, the protocol, the recipe, its column, its
    row, its grid, and at last ``changes``: what is nearer to the user goes before.
    """
    for row in methods or ():
        check_method("method", row, recipe.rows)
    for column in columns or ():
        check_choice("domain", column, domains)
    for column in recipe.columns:
        check_choice("a column of the recipe", column, domains)
    if forbidden := {"train_domains", "test_domains", "seed", "method", "data", *recipe.grid} & set(changes):
        raise ValueError(f"{', '.join(sorted(forbidden))} come from the recipe; write a recipe of your own to change them")
    wanted = [cell for cell in _cells(recipe, domains) if columns is None or _concerns(recipe, cell, columns)]
    made = []
    rows = [row for row in recipe.rows if methods is None or row in methods]
    # seeds first: a sweep that is broken off has whole tables of fewer seeds
    chosen, grid = recipe.seeds if seeds is None else seeds, hparam_grid(recipe)
    for seed, row, hparams, cell in product(chosen, rows, grid, wanted):
        settings = resolved(_settings(recipe, row, cell, seed, grid[hparams], changes))
        made.append((Planned(row, hparams, cell, seed, identity(settings), public(settings)), settings))
    return made


def _cells(recipe: Recipe, domains: Sequence[str]) -> list[Cell]:
    protocol = PROTOCOLS[recipe.protocol]
    pairs = any(SELECTIONS[name].pairs == "needed" for name in recipe.selections)
    return [*protocol.cells(domains), *(protocol.validation_cells(domains) if pairs else [])]


def _concerns(recipe: Recipe, cell: Cell, columns: Sequence[str]) -> bool:
    return bool(set(columns) & set(getattr(cell, recipe.listed)))


def hparam_grid(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Every combination of the grid, by its name; without a grid the empty one alone."""
    made = [dict(zip(recipe.grid, values, strict=True)) for values in product(*recipe.grid.values())]
    return {", ".join(f"{name} {display(value)}" for name, value in each.items()): each for each in made}


def display(value: Any) -> str:
    """A value in a word of its own: numbers as short as they can be told from others."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def _settings(
    recipe: Recipe, row: str, cell: Cell, seed: int, hparams: Mapping[str, Any], changes: Mapping[str, Any]
) -> Settings:
    protocol, own = PROTOCOLS[recipe.protocol], recipe.rows[row]
    method = own.get("method", row)
    # what else decides which pictures are seen is part of their name, and so of what a run is
    kept = f", kept at {recipe.picture_size} px" if recipe.picture_size and "size" not in changes else ""
    held_out = f", {protocol.held_out:.0%} held out by seed" if protocol.held_out else ""
    side = getattr(cell, recipe.listed)
    column = recipe.columns.get(side[0], {}) if len(side) == 1 else {}
    batches = METHODS[method].batches
    return Settings(**{
        "batches": batches,
        **({"domains_per_batch": min(2, len(cell.train))} if batches == "domains" else {}),
        **protocol.settings_for(cell),
        **recipe.settings,
        **column,
        **own,
        **hparams,
        **changes,
        "method": method,
        "data": recipe.data + kept + held_out,
        "train_domains": cell.train,
        "test_domains": cell.test,
        "seed": seed,
    })  # fmt: skip


# --- several goes ----------------------------------------------------------------------------------------------------


def merged(before: Iterable[Planned], more: Iterable[Planned]) -> list[Planned]:
    """What was asked for before and now, each place once. Raise where a place was begun with other settings."""
    found = {planned.place: planned for planned in before}
    for planned in more:
        same = found.setdefault(planned.place, planned)
        if same.run != planned.run:
            differ = [k for k in planned.settings if _plain(planned.settings[k]) != _plain(same.settings.get(k))]
            told = ", ".join(f"{k} {same.settings.get(k)}, not {planned.settings[k]}" for k in differ) or "other settings"
            raise ValueError(f"{planned.row} was begun in this folder with {told}; choose another folder, or those settings")
    return list(found.values())


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def plan_as_json(plan: Sequence[Planned]) -> dict[str, Any]:
    """The settings that all have in common, and of each training its place and the rest."""
    all_settings = [_plain(dict(planned.settings)) for planned in plan]
    common = {k: v for k, v in (all_settings[0] if plan else {}).items() if all(s.get(k) == v for s in all_settings)}
    runs = []
    for planned, settings in zip(plan, all_settings, strict=True):
        rest = {k: v for k, v in settings.items() if k not in common}
        place = {"row": planned.row, "hparams": planned.hparams, "train": planned.cell.train, "test": planned.cell.test}
        runs.append({"run": planned.run, **place, "seed": planned.seed, "settings": rest})
    return {"settings": common, "runs": runs}


def plan_from_json(told: Mapping[str, Any]) -> list[Planned]:
    return [
        Planned(
            run["row"], run["hparams"], Cell(tuple(run["train"]), tuple(run["test"])), run["seed"], run["run"],
            {**told["settings"], **run["settings"]},
        )
        for run in told["runs"]
    ]  # fmt: skip
