"""A recipe: everything that a table needs, in one small Python file that can be read, copied and changed.

The file's docstring says in words what is claimed, how it is run, how long that takes and what should come out; the variable
``recipe`` says it to the program. Such a file is a program: load only those that you trust.
"""

from __future__ import annotations

import ast
import re
import runpy
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from efdm.dg.kinds import check_fields
from efdm.dg.methods import check_method
from efdm.dg.protocols import PROTOCOLS
from efdm.dg.settings import Settings
from efdm.lab.literature import Published
from efdm.lab.scores import SCORES, STDS
from efdm.lab.selection import SELECTIONS
from efdm.ops.choices import check_choice
from efdm.text import suggest

FOLDER = Path(__file__).parents[1] / "recipes"
DOCSTRING_FIELDS = (
    "claim",
    "command",
    "time",
    "expected",
    "runs",
)  # what every docstring says, each at the beginning of a line
Changes = Mapping[str, Any]
# the others come from the recipe's data, protocol and seeds
SETTABLE = tuple(f.name for f in fields(Settings) if f.name not in ("data", "train_domains", "test_domains", "seed"))
EXAMPLES = {
    "methods": ["erm", "efdmix"], "grid": {"lr": (0.001, 0.01)}, "orders": (("erm", "efdmix"),),
    "contrasts": (("mixstyle", "efdmix"),), "settings": {"batch": 32}, "columns": {"photo": {"iterations": 1000}},
}  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """Trainings of several methods under one protocol, and the tables to make of them.

    Args:
        protocol: a row of `PROTOCOLS`.
        data: "pacs", "digits", or any other name for a folder ``domain/class/picture``.
        methods: row of the table -> changes to the settings for it. The method is the row's name, unless the changes name
            another ``method``. A list of names is the same without changes.
        settings: changes to the defaults of `efdm.dg.settings.Settings`, for all.
        columns: changes for the trainings of one column (a domain), such as its number of iterations. Those of ``methods``
            go before them.
        seeds: each method is trained with each.
        grid: setting -> values; every combination is trained. Selection rules choose among them, "last" lists them.
        selections: rows of `SELECTIONS`; a table for each.
        scores: rows of `SCORES`; by default those of the protocol.
        orders: chains of rows, each claimed to be better than the one before.
        contrasts: pairs of rows whose difference is asked for, with nothing claimed.
        published: numbers to stand beside ours.
        std: a row of `STDS`, what follows the ±.
        picture_size: pictures are kept in memory at this size; 0 is ``settings["size"]``.
        notes: sentences under the table.
        name, claim, expected: come from the file and its docstring.
    """

    protocol: str
    data: str
    methods: Mapping[str, Changes] | Sequence[str]
    settings: Changes = field(default_factory=dict)
    columns: Mapping[str, Changes] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    selections: tuple[str, ...] = ("last", "training-domain validation", "oracle")
    scores: tuple[str, ...] = ()
    orders: tuple[tuple[str, ...], ...] = ()
    contrasts: tuple[tuple[str, str], ...] = ()
    published: tuple[Published, ...] = ()
    std: str = "population"
    picture_size: int = 0
    notes: tuple[str, ...] = ()
    name: str = ""
    claim: str = ""
    expected: str = ""

    def __post_init__(self) -> None:
        check_fields(Recipe, vars(self), EXAMPLES)
        object.__setattr__(self, "seeds", tuple(self.seeds))  # of a range, too, which JSON does not know
        check_choice("protocol", self.protocol, PROTOCOLS)
        check_choice("std", self.std, STDS)
        for name in self.selections:
            check_choice("selections", name, SELECTIONS)
        for name in self.scores:
            check_choice("scores", name, SCORES)
        if not self.methods or not self.seeds or not self.selections:
            raise ValueError("a recipe needs at least one method (a list or a mapping), one seed and one selection")
        rows = self.methods if isinstance(self.methods, Mapping) else {name: {} for name in self.methods}
        object.__setattr__(self, "methods", {row: dict(changes) for row, changes in rows.items()})
        object.__setattr__(self, "settings", dict(self.settings))
        for row, changes in self.rows.items():
            check_method("method", changes.get("method", row))
        points = [{name: value} for name, values in self.grid.items() for value in values]
        for changes in (self.settings, *points, *self.rows.values(), *self.columns.values()):
            for name in changes:
                check_choice("a setting", name, SETTABLE)
            check_fields(Settings, changes)
        for row in (name for chain in (*self.orders, *self.contrasts) for name in chain):
            check_choice("a row of orders and contrasts", row, self.rows)
        if not self.scores:
            object.__setattr__(self, "scores", ("pooled",) if self.listed == "test" else ("pooled", "mean of domains"))

    @property
    def rows(self) -> Mapping[str, Changes]:
        """``methods`` as a mapping, which it always is after the beginning."""
        assert isinstance(self.methods, Mapping)
        return self.methods

    @property
    def listed(self) -> str:
        return PROTOCOLS[self.protocol].listed


# --- files -----------------------------------------------------------------------------------------------------------


def recipes() -> dict[str, str]:
    """The recipes that come with the package: name -> the first line of its docstring."""
    return {path.stem: docstring(path).partition("\n")[0] for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"}


def recipe_path(name_or_path: str | Path) -> Path:
    """The file of a packaged recipe, or one's own."""
    given = Path(name_or_path)
    packaged = FOLDER / f"{given.name.removesuffix('.py')}.py"
    if given.is_file():
        return given
    if str(given) == given.name and packaged.is_file():
        return packaged
    if given.suffix != ".py" and str(given) == given.name:
        check_choice("recipe", given.name, recipes())
    raise ValueError(f"there is no file {given}; give the path of a recipe's file, or a name of `efdm dg list` alone")


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A packaged recipe by its name, or one's own by its path. The file is run: whatever goes wrong in it is told with its
    name and line."""
    path = recipe_path(name_or_path)
    try:
        found = runpy.run_path(str(path)).get("recipe")
    except Exception as error:
        what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}{_meant(error)}"
        raise ValueError(f"{path}{_line(error, path)} cannot be run as a recipe ({what})") from error
    if not isinstance(found, Recipe):
        raise ValueError(f"{path} defines no recipe; it needs a line like `recipe = Recipe(...)`, see {FOLDER}")
    told = docstring_fields(docstring(path))
    given: dict[str, Any] = {"name": path.stem, "claim": told.get("claim", ""), "expected": told.get("expected", "")}
    return replace(found, **{key: value for key, value in given.items() if not getattr(found, key)})


def _meant(error: Exception) -> str:
    """The argument of `Recipe` that may have been meant by one that it does not have."""
    unknown = re.match(r"Recipe.* unexpected keyword argument '(\w+)'$", str(error))
    close = suggest(unknown[1], [f.name for f in fields(Recipe)]) if unknown else ""
    return f"; did you mean {close}?" if close else ""


def _line(error: Exception, path: Path) -> str:
    """Where in the file it happened."""
    inside = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else inside[-1] if inside else None
    return "" if line is None else f", line {line},"


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def docstring_fields(text: str) -> dict[str, str]:
    """Return the text of each of `DOCSTRING_FIELDS`: the word, two spaces or more, text, continued by indented lines."""
    found = {}
    for word, rest in re.findall(rf"^({'|'.join(DOCSTRING_FIELDS)})  +(.+(?:\n +.+)*)", text, re.MULTILINE):
        found[word] = " ".join(rest.split())
    return found


# --- as JSON ---------------------------------------------------------------------------------------------------------


def described(recipe: Recipe) -> dict[str, Any]:
    """A recipe as JSON takes it."""
    plain = {f.name: getattr(recipe, f.name) for f in fields(recipe)}
    lines = [{f.name: getattr(line, f.name) for f in fields(line)} for line in recipe.published]
    return {**plain, "published": [{**line, "values": dict(line["values"])} for line in lines]}


def from_description(told: Mapping[str, Any]) -> Recipe:
    """The recipe of `described`, after JSON made lists of its tuples."""
    lines = tuple(
        Published(**{**line, "values": {k: tuple(v) for k, v in line["values"].items()}}) for line in told["published"]
    )
    tuples = {name: tuple(told[name]) for name in ("seeds", "selections", "scores", "notes")}
    chains = {name: tuple(map(tuple, told[name])) for name in ("orders", "contrasts")}
    return Recipe(**{**told, **tuples, **chains, "published": lines})
