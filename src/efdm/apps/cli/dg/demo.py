"""``efdm dg demo``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import option
from efdm.apps.cli.printing import console, print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import parse_seeds
from efdm.apps.cli.recognition_printing import print_tables
from efdm.dg import Settings
from efdm.lab import Study
from efdm.lab.demo import PLOT, SHEET, TABLES, demo_table, run_demo
from efdm.lab.folder import RUNS, check_sweep_folder
from efdm.recognition.model_file import MODEL
from efdm.recognition.settings import run_label
from efdm.training.settings import read_settings

INTRODUCTION = (
    "Digits in four styles. A classifier is trained on three styles and tested on the fourth; each style is held out in "
    "turn. erm is ordinary training. mixstyle also mixes the means and standard deviations of features between pictures, "
    "and efdmix mixes their whole distributions, so the network relies less on style. This is efdmix as in the text of the "
    "paper; efdm dg train defaults to efdmix-flow, as in the authors' code."
)


@report_errors("interrupted; repeat the command to resume")
def demo(
    out: Annotated[Path, option("Folder for tables, pictures and models.", "--out", "-o")] = Path("dg-demo"),
    seeds: Annotated[str, option("Number of seeds. More seeds take longer and give more reliable results.")] = "1",
    iterations: Annotated[int | None, option("Length of each run. Default: the recipe's.", min=1)] = None,
    lanes: Annotated[int | None, option("Runs trained at the same time. Default: one per core.", min=1)] = None,
) -> None:
    """Compare three methods on digits in four styles. Takes a few minutes and needs no download."""
    numbers = parse_seeds(seeds) or [0]
    check_sweep_folder(out)
    console.print(INTRODUCTION)
    with show_progress() as progress:
        study = run_demo(out, seeds=numbers, iterations=iterations, lanes=lanes, progress=progress)
    print_tables([demo_table(study)])
    _print_files(study, out)


def _print_files(study: Study, out: Path) -> None:
    method = study.recipe.orders[0][-1]
    run = out / RUNS / next(planned.run for planned in reversed(study.plan) if planned.row == method)
    analyse = ["efdm", "dg", "analyse", "histogram", "--checkpoint", str(run), "-o", str(out / "features")]
    for title, value in {
        "\nthe four styles": out / SHEET,
        "the table as a plot": out / PLOT,
        "all tables": out / TABLES,
        f"a trained classifier ({run_label(read_settings(Settings, run))})": run / MODEL,
        "analyse its features": shlex.join(analyse),
        "train on your own pictures": "efdm dg train --data FOLDER --test-domains DOMAIN -o OUT",
    }.items():
        print_text(f"{title}: {value}")
