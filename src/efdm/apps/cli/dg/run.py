"""``efdm dg run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from efdm import lab
from efdm.apps.cli.dg.arguments import (
    DATA_HELP,
    Set,
    Word,
    Words,
    collect_settings,
    parse_names,
    parse_seeds,
    parse_shard,
)
from efdm.apps.cli.dg.report import print_data_warnings, print_skipped, print_tables
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.lab.preparation import prepare_sweep
from efdm.lab.sweep import RECIPE
from efdm.training import PRECISIONS, SPEEDS

app = typer.Typer(add_completion=False)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `efdm dg list`) or path of a recipe file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for records, models and logs.")],
    data: Annotated[list[Path] | None, typer.Option(help=DATA_HELP)] = None,
    weights: Annotated[
        Word, typer.Option(help="Initial weights: a .safetensors or .pth file, timm, or random. Default: the recipe's.")
    ] = None,
    seeds: Annotated[
        Word,
        typer.Option(help="A count or a list: 5 means 0 to 4; 0,3 means 0 and 3; 3, means only 3. Default: the recipe's."),
    ] = None,
    methods: Annotated[Words, typer.Option(help="Rows of the recipe, comma-separated. Default: all.")] = None,
    domains: Annotated[Words, typer.Option(help="Columns of the recipe, comma-separated. Default: all.")] = None,
    shard: Annotated[
        Word, typer.Option(help="i/n: only the i-th of n equal parts of the runs, for several machines or GPUs.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Length of each run. Default: the recipe's.")] = None,
    set_: Set = None,
    device: Annotated[
        Word, typer.Option(help="cpu, cuda or cuda:1. Default: the recipe's, or the GPU if one is available.")
    ] = None,
    precision: Annotated[Word, typer.Option(help=f"One of {', '.join(PRECISIONS)}. Default: bf16 on a GPU.")] = None,
    speed: Annotated[
        Word, typer.Option(help=f"One of {', '.join(SPEEDS)}. Default: compile+graph on a GPU, plain on a CPU.")
    ] = None,
    lanes: Annotated[int, typer.Option(min=1, help="Runs trained at the same time: on one GPU, or in CPU processes.")] = 1,
    split: Annotated[
        Word,
        typer.Option(help="PACS only. official (default): the authors' lists; own: a tenth of each class for validation."),
    ] = None,
    lists: Annotated[
        Path | None, typer.Option(help="PACS only: folder of the authors' lists. Default: a folder in or next to --data.")
    ] = None,
    copy: Annotated[
        Word, typer.Option(help="PACS only. complete (default): require all pictures; partial: use those that exist.")
    ] = None,
    note: Annotated[Words, typer.Option(help="A sentence to print under the tables; repeat for several.")] = None,
) -> None:
    """Train all runs of a recipe and print its tables.

    Repeat the command to resume an interrupted run; finished runs are not repeated. Later commands may add other --seeds,
    --methods or --domains to the same folder: the tables show all of them. To share the work, give every machine its own
    --shard and folder, and merge the folders with `efdm dg table`.
    """
    with report_errors(lambda: _interrupted(out)):
        chosen = lab.load_recipe(recipe)
        changes = collect_settings(
            set_, weights=weights, iterations=iterations, device=device, precision=precision, speed=speed
        )
        rows, columns = parse_names("methods", methods, list(chosen.rows)), parse_names("domains", domains)
        numbers, part = parse_seeds(seeds), parse_shard(shard)
        pacs = {name: value for name, value in {"split": split, "lists": lists, "copy": copy}.items() if value is not None}
        try:
            with show_progress() as progress:
                prepared, pictures, changes = prepare_sweep(
                    chosen, data or [], out, methods=rows, domains=columns, pacs=pacs, changes=changes, progress=progress
                )
                print_data_warnings(pictures, pictures.domain_names)
                study = lab.run(
                    prepared, pictures, out, methods=rows, domains=columns, seeds=numbers, shard=part, lanes=lanes,
                    progress=progress, notes=note or [], **changes,
                )  # fmt: skip
        except FloatingPointError:  # some runs diverged; the others finished
            print_tables(lab.tables(lab.read_study(out)))
            raise
        print_skipped(pictures, out / "environment.json")
        print_tables(lab.tables(study))
        print_text(f"\nrecords, models and logs: {out}")
        print_text(f"print the tables again: efdm dg table {out}")


def _interrupted(out: Path) -> str:
    results = f"; efdm dg table {out} shows the finished runs" if (out / RECIPE).exists() else ""
    return f"interrupted; repeat the command to resume{results}"
