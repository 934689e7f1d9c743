"""``efdm dg list`` and ``efdm reid list``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from efdm.apps.cli.printing import console, print_text
from efdm.data.people_layouts import LAYOUTS
from efdm.lab import recipes
from efdm.lab.recipe import docstring, docstring_fields, recipe_path
from efdm.lab.tasks import TASKS
from efdm.models.backbones import BACKBONES
from efdm.reid import PROTOCOLS


def dg() -> None:
    """List recipes, methods and backbones."""
    _print_task("dg")
    print_text("Start with: efdm dg demo")


def reid() -> None:
    """List recipes, methods, backbones, protocols and layouts."""
    _print_task("reid")
    _print_rows("Protocols of test sets", ((name, row.about) for name, row in PROTOCOLS.items()))
    _print_rows("Layouts of data sets, recognized by their file names", ((n, row.example) for n, row in LAYOUTS.items()))


def _print_task(task: str) -> None:
    rows = []
    for name, about in recipes(task).items():
        runs, _, _ = docstring_fields(docstring(recipe_path(name))).get("runs", "").partition(" ")
        rows.append((name, about, runs))
    _print_rows("Recipes and their number of runs", rows)
    methods = []
    for row in TASKS[task].methods.values():
        options = ", ".join(f"{name}={value}" for name, value in row.options.items())
        methods.append((row.name, row.about, "; ".join(filter(None, [options, row.batches, row.source]))))
    _print_rows("Methods, their options (--set options.NAME=VALUE), their batches and their sources", methods)
    timm = ("NAME", "any timm model, such as resnet18.tv_in1k or mobilenetv2_100")
    _print_rows("Backbones", [*((name, own.about) for name, own in BACKBONES.items()), timm])


def _print_rows(title: str, rows: Iterable[Sequence[str]]) -> None:
    """Print a table of names, descriptions and, if given, details, without lines, below its title."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, about, *details in rows:
        table.add_row(name, Text(about), *(Text(detail, style="dim") for detail in details))
    console.print(title, style="bold")
    console.print(Padding(table, (0, 0, 1, 2)))
