"""``efdm dg run`` and ``efdm reid run``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from efdm import lab
from efdm.apps.cli import recognition_options as common
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Paths, Word, Words, choice, option, parse_pairs, parse_shard
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_printing import print_data_warnings, print_skipped, print_tables, print_trials
from efdm.errors import SettingError
from efdm.lab.dg_preparation import prepare_dg_sweep
from efdm.lab.folder import RECIPE
from efdm.lab.reid_preparation import prepare_reid_sweep, save_trials
from efdm.lab.tasks import protocols_of
from efdm.training import PRECISIONS, SPEEDS
from efdm.training.folder import ENVIRONMENT

RecipeName = Annotated[str, typer.Argument(help="Name of a recipe (see `list`) or path of a recipe file.")]
Out = Annotated[Path, option("Folder for records, models and logs.", "--out", "-o")]
Weights = Annotated[Word, option("Initial weights: a .safetensors or .pth file, timm, or random. Default: the recipe's.")]
Seeds = Annotated[Word, option("5 means 0 to 4; 0,3 means 0 and 3; 3, means only 3. Default: the recipe's.")]
Methods = Annotated[Words, option("Rows of the recipe, comma-separated. Default: all.")]
Domains = Annotated[Words, option("Columns of the recipe (test sets), comma-separated. Default: all.")]
Shard = Annotated[Word, option("i/n: only the i-th of n equal parts of the runs, for several machines or GPUs.")]
Iterations = Annotated[int | None, option("Length of each run. Default: the recipe's.", min=1)]
Device = Annotated[Word, option("cpu, cuda or cuda:1. Default: the recipe's, or the GPU if one is available.")]
Precision = Annotated[Word, choice(PRECISIONS, "Default: bf16 on a GPU.")]
Speed = Annotated[Word, choice(SPEEDS, "Default: compile+graph on a GPU, plain on a CPU.")]
Lanes = Annotated[int, option("Runs trained at the same time: on one GPU, or in CPU processes.", min=1)]
Keep = Annotated[Literal["models", "records"], option("records: delete the model and log of every finished run.")]
Split = Annotated[Word, option("PACS only. official (default): the authors' lists; own: a tenth of each class to validate.")]
Lists = Annotated[Path | None, option("PACS only: folder of the authors' lists. Default: in or next to --data.")]
Copy = Annotated[Word, option("PACS only. complete (default): require all pictures; partial: use those that exist.")]
Note = Annotated[Words, option("A sentence to print under the tables; repeat for several.")]
Reuse = Annotated[Paths, option("Folder of another recipe, to copy its records of equal runs. Repeatable.")]

# recipe, out, changes, methods, domains, progress -> the arguments of `lab.run`: recipe, data, settings
Prepare = Callable[..., tuple[lab.Recipe, Any, dict[str, Any]]]


def dg(
    context: typer.Context,
    recipe: RecipeName,
    out: Out,
    data: Annotated[Paths, option(common.DATA_HELP)] = None,
    weights: Weights = None,
    seeds: Seeds = None,
    methods: Methods = None,
    domains: Domains = None,
    shard: Shard = None,
    iterations: Iterations = None,
    set_: common.Set = None,
    device: Device = None,
    precision: Precision = None,
    speed: Speed = None,
    lanes: Lanes = 1,
    keep: Keep = "models",
    split: Split = None,
    lists: Lists = None,
    copy: Copy = None,
    storage: common.StorageOption = "memory",
    note: Note = None,
    reuse: Reuse = None,
) -> None:
    """Train all runs of a recipe and print its tables.

    Repeat the command to resume an interrupted run; finished runs are not repeated. Later commands may add other --seeds,
    --methods or --domains to the same folder: the tables show all of them. To share the work, give every machine its own
    --shard and folder, and merge the folders with `efdm dg table`.
    """
    with report_errors(lambda: _interrupted(out, "dg")):
        pacs = {name: value for name, value in {"split": split, "lists": lists, "copy": copy}.items() if value is not None}
        _run(context, "dg", partial(prepare_dg_sweep, sources=data or [], pacs=pacs, storage=storage))


def reid(
    context: typer.Context,
    recipe: RecipeName,
    out: Out,
    data: Annotated[Words, option(f"{common.SETS_HELP} The recipe sets the names, such as market=PATH.")] = None,
    weights: Weights = None,
    seeds: Seeds = None,
    methods: Methods = None,
    domains: Domains = None,
    shard: Shard = None,
    iterations: Iterations = None,
    layout: common.Layouts = None,
    set_: common.Set = None,
    device: Device = None,
    precision: Precision = None,
    speed: Speed = None,
    lanes: Lanes = 1,
    keep: Keep = "models",
    note: Note = None,
    reuse: Reuse = None,
) -> None:
    """Train all runs of a recipe and print its tables.

    Repeat the command to resume an interrupted run; finished runs are not repeated. Later commands may add other --seeds,
    --methods or --domains to the same folder: the tables show all of them. To share the work, give every machine its own
    --shard and folder, and merge the folders with `efdm reid table`.
    """
    with report_errors(lambda: _interrupted(out, "reid")):
        layouts = parse_pairs("layout", layout, "LAYOUT")
        study, sets = _run(context, "reid", partial(prepare_reid_sweep, paths=common.parse_sets(data), layouts=layouts))
        print_trials(save_trials(sets, protocols_of(study.plan), out))


def _run(context: typer.Context, task: str, prepare: Prepare) -> tuple[lab.Study, Any]:
    """Run the sweep of a command with the options in its ``context`` and print its tables. Return study and data."""
    params = context.params
    # Path, because older versions of typer convert paths after they fill in the parameters of the context
    recipe, out = lab.load_recipe(params["recipe"]), Path(params["out"])
    if recipe.task != task:
        command = f"efdm {recipe.task} run {params['recipe']}"
        raise SettingError(f"{recipe.name} is a recipe of efdm {recipe.task}; run: {command}", "recipe")
    changes = common.collect_settings(params, task)
    seeds, shard = common.parse_seeds(params["seeds"]), parse_shard(params["shard"])
    methods = common.parse_names("methods", params["methods"], list(recipe.rows))
    domains = common.parse_names("domains", params["domains"])
    try:
        with show_progress() as progress:
            part: Any = {"methods": methods, "domains": domains, "progress": progress}
            prepared, data, settings = prepare(recipe, out=out, changes=changes, **part)
            print_data_warnings(data)
            study = lab.run(
                prepared, data, out, seeds=seeds, shard=shard, lanes=params["lanes"], keep=params["keep"],
                notes=params["note"] or [], reuse=params["reuse"] or [], **part, **settings,
            )  # fmt: skip
    except FloatingPointError:  # some runs diverged; the others finished
        print_tables(lab.tables(lab.read_study(out)))
        raise
    print_skipped(data, out / ENVIRONMENT)
    print_tables(lab.tables(study))
    print_text(f"\nrecords{', models and logs' if params['keep'] == 'models' else ''}: {out}")
    print_text(f"print the tables again: efdm {task} table {shlex.quote(str(out))}")
    return study, data


def _interrupted(out: Path, task: str) -> str:
    results = f"; efdm {task} table {shlex.quote(str(out))} shows the finished runs" if (out / RECIPE).exists() else ""
    return f"interrupted; repeat the command to resume{results}"
