"""Options and the common part of ``efdm dg run`` and ``efdm reid run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from efdm import lab
from efdm.apps.cli.options import choice, option, parse_shard
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import Word, Words, collect_settings, parse_names, parse_seeds
from efdm.apps.cli.report import print_skipped, print_tables
from efdm.errors import SettingError
from efdm.lab.sweep import RECIPE
from efdm.training import PRECISIONS, SPEEDS

RecipeName = Annotated[str, typer.Argument(help="Name of a recipe (see `list`) or path of a recipe file.")]
Out = Annotated[Path, option("Folder for records, models and logs.", "--out", "-o")]
Weights = Annotated[Word, option("Initial weights: a .safetensors or .pth file, timm, or random. Default: the recipe's.")]
Seeds = Annotated[
    Word, option("A count or a list: 5 means 0 to 4; 0,3 means 0 and 3; 3, means only 3. Default: the recipe's.")
]
Methods = Annotated[Words, option("Rows of the recipe, comma-separated. Default: all.")]
Shard = Annotated[Word, option("i/n: only the i-th of n equal parts of the runs, for several machines or GPUs.")]
Iterations = Annotated[int | None, option("Length of each run. Default: the recipe's.", min=1)]
SweepDevice = Annotated[Word, option("cpu, cuda or cuda:1. Default: the recipe's, or the GPU if one is available.")]
Precision = Annotated[Word, choice(PRECISIONS, "Default: bf16 on a GPU.")]
Speed = Annotated[Word, choice(SPEEDS, "Default: compile+graph on a GPU, plain on a CPU.")]
Lanes = Annotated[int, option("Runs trained at the same time: on one GPU, or in CPU processes.", min=1)]
Reuse = Annotated[
    list[Path] | None, option("Folder of another recipe whose records of the same runs are copied; repeat for several.")
]
Note = Annotated[Words, option("A sentence to print under the tables; repeat for several.")]

# recipe, out, changes, methods, domains, progress -> the arguments of `lab.run`: recipe, data, settings
Prepare = Callable[..., tuple[lab.Recipe, Any, dict[str, Any]]]
SETTINGS = ("weights", "iterations", "device", "precision", "speed")  # that have an option of their own


def run_sweep(context: typer.Context, task: str, prepare: Prepare, warn: Callable[[Any], None]) -> tuple[lab.Study, Any]:
    """Run the sweep of a command and print its tables. Return study and data. ``warn`` prints warnings about the data."""
    given = context.params
    recipe, out = lab.load_recipe(given["recipe"]), given["out"]
    if recipe.task != task:
        command = f"efdm {recipe.task} run {given['recipe']}"
        raise SettingError(f"{recipe.name} is a recipe of efdm {recipe.task}; run: {command}", "recipe")
    changes = collect_settings(given["set_"], task, **{name: given[name] for name in SETTINGS})
    rows, columns = parse_names("methods", given["methods"], list(recipe.rows)), parse_names("domains", given["domains"])
    seeds, shard = parse_seeds(given["seeds"]), parse_shard(given["shard"])
    try:
        with show_progress() as progress:
            chosen: dict[str, Any] = {"methods": rows, "domains": columns, "progress": progress}
            prepared, data, settings = prepare(recipe, out=out, changes=changes, **chosen)
            warn(data)
            study = lab.run(
                prepared, data, out, seeds=seeds, shard=shard, lanes=given["lanes"], notes=given["note"] or [],
                reuse=given["reuse"] or [], **chosen, **settings,
            )  # fmt: skip
    except FloatingPointError:  # some runs diverged; the others finished
        print_tables(lab.tables(lab.read_study(out)))
        raise
    print_skipped(data, out / "environment.json")
    print_tables(lab.tables(study))
    print_text(f"\nrecords, models and logs: {out}")
    print_text(f"print the tables again: efdm {recipe.task} table {out}")
    return study, data


def interrupted(out: Path, task: str) -> str:
    results = f"; efdm {task} table {out} shows the finished runs" if (out / RECIPE).exists() else ""
    return f"interrupted; repeat the command to resume{results}"
