"""``efdm dg list``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from efdm.apps.cli.printing import console, print_text
from efdm.lab import recipes
from efdm.lab.recipe import docstring, docstring_fields, recipe_path
from efdm.lab.tasks import TASKS
from efdm.models.backbones import BACKBONES


def list_command() -> None:
    """List recipes, methods and backbones."""
    print_lists("dg")
    print_text("Start with: efdm dg demo")


def print_lists(task: str) -> None:
    """Print recipes and methods of a task, and backbones."""
    print_rows("Recipes and their number of runs", (
        (name, about, docstring_fields(docstring(recipe_path(name))).get("runs", "").partition(" ")[0])
        for name, about in recipes(task).items()
    ))  # fmt: skip
    print_rows("Methods, their options (--set options.NAME=VALUE), their batches and their sources", (
        (row.name, row.about, "; ".join(filter(None, [_options(row.options), getattr(row, "batches", ""), row.source])))
        for row in TASKS[task].methods.values()
    ))  # fmt: skip
    timm = ("NAME", "any timm model, such as resnet18.tv_in1k or mobilenetv2_100", "")
    print_rows("Backbones", [*((name, own.about, "") for name, own in BACKBONES.items()), timm])


def _options(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def print_rows(title: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Print a table without lines below its title."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, about, details in rows:
        table.add_row(name, Text(about), Text(details, style="dim"))
    console.print(title, style="bold")
    console.print(Padding(table, (0, 0, 1, 2)))
