"""``efdm reid run``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from efdm.apps.cli import sweeps
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import option, parse_pairs
from efdm.apps.cli.recognition_options import SETS_HELP, DamagedPictures, Layouts, Set, Words, parse_sets
from efdm.apps.cli.reid.report import print_notes, print_trials
from efdm.lab.reid_preparation import prepare_reid_sweep, save_trials
from efdm.lab.tasks import protocols_of


def run(
    context: typer.Context,
    recipe: sweeps.RecipeName,
    out: sweeps.Out,
    data: Annotated[Words, option(f"{SETS_HELP} The recipe sets the names, such as market=PATH.")] = None,
    weights: sweeps.Weights = None,
    seeds: sweeps.Seeds = None,
    methods: sweeps.Methods = None,
    domains: Annotated[Words, option("Test sets, comma-separated. Default: all.")] = None,
    shard: sweeps.Shard = None,
    iterations: sweeps.Iterations = None,
    layout: Layouts = None,
    damaged: DamagedPictures = "raise",
    set_: Set = None,
    device: sweeps.SweepDevice = None,
    precision: sweeps.Precision = None,
    speed: sweeps.Speed = None,
    lanes: sweeps.Lanes = 1,
    note: sweeps.Note = None,
    reuse: sweeps.Reuse = None,
) -> None:
    """Train all runs of a recipe and print its tables.

    Repeat the command to resume an interrupted run; finished runs are not repeated. Later commands may add other --seeds,
    --methods or --domains to the same folder: the tables show all of them. To share the work, give every machine its own
    --shard and folder, and merge the folders with `efdm reid table`.
    """
    with report_errors(lambda: sweeps.interrupted(out, "reid")):
        reading: Any = {"layouts": parse_pairs("layout", layout, "LAYOUT"), "damaged": damaged}
        prepare = partial(prepare_reid_sweep, paths=parse_sets(data), **reading)
        study, sets = sweeps.run_sweep(context, "reid", prepare, print_notes)
        print_trials(save_trials(sets, protocols_of(study.plan), out))
