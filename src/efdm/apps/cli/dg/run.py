"""``efdm dg run``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli import sweeps
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import option
from efdm.apps.cli.recognition_options import DATA_HELP, Set, Word, Words
from efdm.apps.cli.report import print_data_warnings
from efdm.lab.preparation import prepare_sweep


def run(
    context: typer.Context,
    recipe: sweeps.RecipeName,
    out: sweeps.Out,
    data: Annotated[list[Path] | None, option(DATA_HELP)] = None,
    weights: sweeps.Weights = None,
    seeds: sweeps.Seeds = None,
    methods: sweeps.Methods = None,
    domains: Annotated[Words, option("Columns of the recipe, comma-separated. Default: all.")] = None,
    shard: sweeps.Shard = None,
    iterations: sweeps.Iterations = None,
    set_: Set = None,
    device: sweeps.SweepDevice = None,
    precision: sweeps.Precision = None,
    speed: sweeps.Speed = None,
    lanes: sweeps.Lanes = 1,
    split: Annotated[
        Word, option("PACS only. official (default): the authors' lists; own: a tenth of each class for validation.")
    ] = None,
    lists: Annotated[
        Path | None, option("PACS only: folder of the authors' lists. Default: a folder in or next to --data.")
    ] = None,
    copy: Annotated[
        Word, option("PACS only. complete (default): require all pictures; partial: use those that exist.")
    ] = None,
    note: sweeps.Note = None,
    reuse: sweeps.Reuse = None,
) -> None:
    """Train all runs of a recipe and print its tables.

    Repeat the command to resume an interrupted run; finished runs are not repeated. Later commands may add other --seeds,
    --methods or --domains to the same folder: the tables show all of them. To share the work, give every machine its own
    --shard and folder, and merge the folders with `efdm dg table`.
    """
    with report_errors(lambda: sweeps.interrupted(out, "dg")):
        pacs = {name: value for name, value in {"split": split, "lists": lists, "copy": copy}.items() if value is not None}
        prepare = partial(prepare_sweep, sources=data or [], pacs=pacs)
        sweeps.run_sweep(context, "dg", prepare, lambda pictures: print_data_warnings(pictures, pictures.domain_names))
