"""``efdm dg``: the laboratory of domain generalization. Each command has a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from efdm import lab
from efdm.apps import dg_open
from efdm.apps.dg_analyse import analyse
from efdm.apps.dg_demo import demo
from efdm.apps.dg_predict import predict
from efdm.apps.dg_run import run
from efdm.apps.dg_show import show_tables
from efdm.apps.dg_train import train_one
from efdm.data.images import write_bytes
from efdm.dg import METHODS
from efdm.lab.recipe import docstring, docstring_fields, recipe_path
from efdm.lab.scores import STDS
from efdm.models.backbones import BACKBONES
from efdm.ops.choices import check_choice

app = typer.Typer(no_args_is_help=True, help="Domain generalization: classifiers that survive a new domain.")
console = Console()

SUFFIXES = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "text", "": "text"}  # of a file -> its format


@app.callback()
def _root() -> None:
    """Domain generalization: classifiers that survive a new domain."""


app.command("demo")(demo)
app.command("train")(train_one)
app.command("predict")(predict)
app.command("run")(run)


@app.command("table")
def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders of `efdm dg run`; several of one recipe make one table.")],
    form: Annotated[
        str, typer.Option("--format", help=f"One of {', '.join(lab.FORMATS)}. Default: that of --out, or as it looks best.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file: .md, .csv, .tex or .txt. Default: printed.")
    ] = None,
    selection: Annotated[
        str, typer.Option(help=f"One rule alone: {', '.join(lab.SELECTIONS)}. Default: all; in CSV the recipe's first.")
    ] = "",
    std: Annotated[str, typer.Option(help=f"What follows the ±: {', '.join(STDS)}. Default: the recipe's.")] = "",
) -> None:
    """Make the tables of a run, finished or not, from its records."""
    with dg_open.sentences(console, lambda: "interrupted; nothing was written"):
        form = _form(form, out)
        study = lab.read_study(*runs)
        if selection:
            check_choice("--selection", selection, lab.SELECTIONS)
            _check_asked(selection, study.recipe)
            study = replace(study, recipe=replace(study.recipe, selections=(selection,)))
        if std:
            check_choice("--std", std, STDS)
        if form == "csv":  # for programs, which expect one table
            tables = [lab.accuracy_table(study, study.recipe.selections[0], std=std)]
        else:
            tables = lab.tables(study, std)
        if not form:
            show_tables(console, tables)
            return
        text = "\n".join(lab.render(each, form) for each in tables)
        if out is None:
            console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        else:
            write_bytes(out, text.encode())
            console.print(str(out), markup=False, highlight=False, soft_wrap=True)


def _form(form: str, out: Path | None) -> str:
    """The format by its name or a file's ending, else by the file; nothing for what is only shown."""
    if form:
        form = SUFFIXES.get(f".{form}", form)
        check_choice("--format", form, lab.FORMATS)
    elif out is not None:
        if out.suffix.lower() not in SUFFIXES:
            endings = ", ".join(filter(None, SUFFIXES))
            raise ValueError(f"{out}: a table is not written as {out.suffix}; end it in one of {endings}, or give --format")
        form = SUFFIXES[out.suffix.lower()]
    return form


def _check_asked(selection: str, recipe: lab.Recipe) -> None:
    if selection not in recipe.selections:
        raise ValueError(
            f"--selection={selection!r}: the recipe's `selections` decide which rules its runs are read by, here "
            f"{', '.join(map(repr, recipe.selections))}; put it there and run the recipe again, which trains nothing twice"
        )


app.command("analyse")(analyse)


@app.command("list")
def list_() -> None:
    """Recipes, methods and backbones."""
    _print("Recipes, and how many trainings they are", [
        (name, about, docstring_fields(docstring(recipe_path(name))).get("runs", "").partition(" ")[0])
        for name, about in lab.recipes().items()
    ])  # fmt: skip
    _print("Methods, their options (--set options.NAME=VALUE), the batches they want, and where they come from", [
        (row.name, row.about, "; ".join([*_options(row.options), row.batches, row.source])) for row in METHODS.values()
    ])  # fmt: skip
    timm = ("NAME", "any model of timm, such as resnet18.tv_in1k or mobilenetv2_100", "")
    _print("Backbones", [*((name, own.about, "") for name, own in BACKBONES.items()), timm])
    console.print("Begin with: efdm dg demo", highlight=False)


def _options(options: Mapping[str, object]) -> list[str]:
    return [", ".join(f"{name}={value}" for name, value in options.items())] if options else []


def _print(title: str, rows: Sequence[tuple[str, str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, about, more in rows:
        table.add_row(name, Text(about), Text(more, style="dim"))
    console.print(title, style="bold")
    console.print(Padding(table, (0, 0, 1, 2)))
