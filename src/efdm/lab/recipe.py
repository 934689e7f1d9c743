"""Recipes: everything needed to make a table, in one small Python file.

The file's docstring states the claim, the command, the time and the expected result; the variable ``recipe`` is a `Recipe`.
Loading a recipe executes the file, so load only files that you trust.
"""

from __future__ import annotations

import ast
import re
import runpy
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from efdm.errors import SettingError
from efdm.lab.protocols import Protocol
from efdm.lab.published import Published
from efdm.lab.selection import STDS
from efdm.lab.tasks import TASKS, LabTask
from efdm.ops.choices import check_choice

FOLDER = Path(__file__).parents[1] / "recipes"
DOCSTRING_FIELDS = ("claim", "command", "time", "expected", "runs")  # each starts a line of every recipe's docstring
Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """Runs of several methods under one protocol, and the tables to make from them.

    Args:
        protocol: a row of `PROTOCOLS`, or for re-identification of `REID_PROTOCOLS` (`efdm.lab.protocols`).
        data: "pacs", "digits", or your own name for a folder ``domain/class/picture``. For re-identification, the
            names of the data sets, such as "market, grid", in the order of columns.
        methods: maps each row of the table to changes of the settings. The row's name is the method unless the changes
            contain ``method``. A list of names means no changes.
        settings: changes to the defaults of the task's settings, such as `efdm.dg.Settings`, for all runs.
        columns: changes for the runs of one column (a domain), such as their number of iterations; ``methods`` override
            them.
        seeds: each method is trained with each seed.
        grid: maps settings to values; every combination is trained. Selection rules choose among them; "last" lists them.
        draws: hyperparameters are drawn this many times for every seed, see `efdm.lab.draws`; used like a grid.
        selections: rows of `SELECTIONS`; each gives a table. The default is all rules of the task that need no more runs.
        scores: rows of the task's scores; the default depends on the protocol.
        orders: chains of rows, each claimed to be better than the one before.
        contrasts: pairs of rows to compare without a claim.
        separate_contrasts: pairs for a separate table, with p-values corrected for these pairs only.
        published: published numbers to show next to ours.
        std: a row of `STDS`: the spread after the ±.
        picture_size: the size at which pictures are held in memory; 0 is ``settings["size"]``.
        notes: sentences to print under the table.
        task: a row of `TASKS`: "dg", domain generalization, or "reid", re-identification.
        name: defaults to the name of the file.
    """

    protocol: str
    data: str
    methods: Mapping[str, Changes] | Sequence[str]
    settings: Changes = field(default_factory=dict)
    columns: Mapping[str, Changes] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    draws: int = 0
    selections: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    orders: tuple[tuple[str, ...], ...] = ()
    contrasts: tuple[tuple[str, str], ...] = ()
    separate_contrasts: tuple[tuple[str, str], ...] = ()
    published: tuple[Published, ...] = ()
    std: str = "population"
    picture_size: int = 0
    notes: tuple[str, ...] = ()
    task: str = "dg"
    name: str = ""

    def __post_init__(self) -> None:
        for name, adapter in _adapters().items():
            try:
                value = adapter.validate_python(getattr(self, name))  # also converts lists, as in JSON, to tuples
            except ValidationError as error:
                problem = error.errors()[0]["msg"]
                raise SettingError(f"{name}: {problem}, got {getattr(self, name)!r}", name) from None
            object.__setattr__(self, name, value)
        if not isinstance(self.methods, Mapping):
            object.__setattr__(self, "methods", {row: {} for row in self.methods})
        if not self.selections:
            without_more_runs = (name for name, rule in self.task_row.selections.items() if rule.uses != "pairs")
            object.__setattr__(self, "selections", tuple(without_more_runs))
        if not self.scores:
            object.__setattr__(self, "scores", self.protocol_row.scores)
        self._check()

    def _check(self) -> None:
        choices = {
            "std": ((self.std,), STDS),
            "selections": (self.selections, self.task_row.selections),
            "scores": (self.scores, self.task_row.scores),
        }
        for argument, (names, allowed) in choices.items():
            for name in names:
                check_choice(argument, name, allowed)
        if not self.methods or not self.seeds:
            raise SettingError("a recipe needs at least one method and one seed")
        if self.grid and self.draws:
            raise SettingError("a recipe has a grid or draws, not both", ("grid", "draws"))
        for row, changes in self.rows.items():
            check_choice("method", changes.get("method", row), self.task_row.methods)
        in_grid = [{name: value} for name, values in self.grid.items() for value in values]
        for changes in (self.settings, *in_grid, *self.rows.values(), *self.columns.values()):
            self.task_row.check_changes(changes)
        for row in (name for chain in (*self.orders, *self.contrasts, *self.separate_contrasts) for name in chain):
            check_choice("row", row, self.rows)

    @property
    def rows(self) -> Mapping[str, Changes]:
        """``methods``, which is a mapping after construction."""
        assert isinstance(self.methods, Mapping)
        return self.methods

    @property
    def task_row(self) -> LabTask:
        """The row of `TASKS`."""
        check_choice("task", self.task, TASKS)
        return TASKS[self.task]

    @property
    def protocol_row(self) -> Protocol:
        """The row of the task's protocols."""
        check_choice("protocol", self.protocol, self.task_row.protocols)
        return self.task_row.protocols[self.protocol]


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(Recipe).items()}


def as_json(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as JSON values; ``Recipe(**as_json(recipe))`` equals it."""
    return {name: adapter.dump_python(getattr(recipe, name), mode="json") for name, adapter in _adapters().items()}


def recipes(task: str = "") -> dict[str, str]:
    """Return the first docstring line of each packaged recipe, or of those of a task, by name. No file is executed."""
    paths = [path for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"]
    of_task = {path.stem: "reid" if path.stem.startswith("reid_") else "dg" for path in paths}
    return {path.stem: docstring(path).partition("\n")[0] for path in paths if task in ("", of_task[path.stem])}


def recipe_path(name_or_path: str | Path) -> Path:
    """Return the file of a packaged recipe, or the path itself if it is a file."""
    path = Path(name_or_path)
    for file in (path, FOLDER / path.with_suffix(".py")):
        if file.is_file():
            return file
    if path.suffix != ".py" and str(path) == path.name:
        check_choice("recipe", path.name, recipes())
    raise SettingError(f"file not found: {path}; pass a recipe's file or the name of a packaged recipe", "recipe")


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Load a packaged recipe by name or any recipe by path. The file is executed; errors name the file and the line."""
    path = recipe_path(name_or_path)
    try:
        recipe = runpy.run_path(str(path)).get("recipe")
    except Exception as error:
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}{_line_number(error, path)}: {what}") from error
    if not isinstance(recipe, Recipe):
        raise ValueError(f"{path} defines no recipe; it needs a line like `recipe = Recipe(...)`, see {FOLDER}")
    return recipe if recipe.name else replace(recipe, name=path.stem)


def _line_number(error: Exception, path: Path) -> str:
    inside = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else inside[-1] if inside else None
    return "" if line is None else f", line {line}"


def docstring(path: Path) -> str:
    """Return the docstring of a Python file without executing it."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def docstring_fields(text: str) -> dict[str, str]:
    """Return the `DOCSTRING_FIELDS` of a docstring: a name, two spaces or more, and text; indented lines continue it."""
    fields = re.findall(rf"^({'|'.join(DOCSTRING_FIELDS)})  +(.+(?:\n +.+)*)", text, re.MULTILINE)
    return {name: " ".join(value.split()) for name, value in fields}
