"""``efdm reid run``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from efdm.apps.cli import sweeps
from efdm.apps.cli.arguments import (
    SETS_HELP,
    DamagedPictures,
    Layouts,
    Set,
    Words,
    collect_settings,
    parse_sets,
)
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import parse_pairs
from efdm.apps.cli.reid.report import print_notes, print_trials
from efdm.lab.people import prepare_reid_sweep, save_trials
from efdm.lab.tasks import protocols_of


def run(
    recipe: sweeps.RecipeName,
    out: sweeps.Out,
    data: Annotated[Words, typer.Option(help=f"{SETS_HELP} The recipe sets the names, such as market=PATH.")] = None,
    weights: sweeps.Weights = None,
    seeds: sweeps.Seeds = None,
    methods: sweeps.Methods = None,
    domains: Annotated[Words, typer.Option(help="Test sets, comma-separated. Default: all.")] = None,
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
) -> None:
    """Train all runs of a recipe and print its tables.

    Repeat the command to resume an interrupted run; finished runs are not repeated. Later commands may add other --seeds,
    --methods or --domains to the same folder: the tables show all of them. To share the work, give every machine its own
    --shard and folder, and merge the folders with `efdm reid table`.
    """
    with report_errors(lambda: sweeps.interrupted(out, "reid")):
        chosen = sweeps.load_recipe(recipe, "reid")
        changes = collect_settings(
            set_, "reid", weights=weights, iterations=iterations, device=device, precision=precision, speed=speed
        )
        reading: Any = {"layouts": parse_pairs("layout", layout, "LAYOUT"), "damaged": damaged}
        study, sets = sweeps.run_sweep(
            chosen, out, partial(prepare_reid_sweep, chosen, parse_sets(data), out, changes=changes, **reading),
            seeds=seeds, methods=methods, domains=domains, shard=shard, lanes=lanes, note=note, warn=print_notes,
        )  # fmt: skip
        print_trials(save_trials(sets, protocols_of(study.plan), out))
