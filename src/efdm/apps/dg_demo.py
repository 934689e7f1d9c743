"""``efdm dg demo``: domain generalization in three minutes, from digits that come with scikit-learn."""

from __future__ import annotations

import shlex
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from torch import Tensor

from efdm import lab
from efdm.apps import dg_open
from efdm.apps.dg_run import go
from efdm.apps.dg_show import Bars, show_tables, training_name
from efdm.data import datasets, write_picture
from efdm.data.domains import DomainSet
from efdm.data.sheets import sheet
from efdm.dg.run import MODEL
from efdm.dg.settings import read_settings
from efdm.dg.workers import available_cores
from efdm.lab.analyses.drawing import colour_of, new_figure, plain, save, with_spaces
from efdm.lab.compare import contrast_sentence, difference
from efdm.lab.literature import AVERAGE
from efdm.lab.report import Table
from efdm.lab.results import numbers
from efdm.lab.scores import STDS
from efdm.lab.sweep import check_folder

console = Console()

RECIPE = "digits_demo"
SEEDS = 1  # in three minutes on two cores
SHEET, PLOT, TABLES = "domains.png", "accuracy.png", "tables.md"
ABOUT = (
    "Digits in four styles. A classifier is trained on three of them and tested on the fourth, which it has never seen; "
    "each style is the new one in turn. erm learns as usual. mixstyle also mixes the means and deviations of features "
    "between pictures while it learns, efdmix their whole distributions, so that the network relies less on style."
)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for tables, pictures and models.")] = Path("dg-demo"),
    seeds: Annotated[str, typer.Option(help="5: the seeds 0 to 4. More take longer and tell more.")] = str(SEEDS),
    iterations: Annotated[int | None, typer.Option(min=1, help="Default: the recipe's.")] = None,
    lanes: Annotated[int | None, typer.Option(min=1, help="Trainings side by side. Default: one on each core.")] = None,
) -> None:
    """See what mixing does: three ways to train, four styles of digits, one table and one plot. Needs no download."""
    with dg_open.sentences(console, lambda: "interrupted; the same command goes on where it stopped", out=out):
        parts = {"seeds": dg_open.seeds(seeds), "methods": None, "domains": None}
        check_folder(out)
        recipe = lab.load_recipe(RECIPE)
        data = datasets.load_dataset(datasets.DIGITS, [], recipe.settings["size"])
        console.print(ABOUT, highlight=False)
        changes = dg_open.suited(torch.device("cpu"), recipe.settings)
        changes |= {"iterations": iterations} if iterations else {}
        with Bars(console) as bars:
            study = go(recipe, data, out, bars, lanes=lanes or available_cores(), parts=parts, changes=changes)
        show_tables(console, [_table(study)])
        write_picture(out / SHEET, domain_sheet(data))
        (out / TABLES).write_text("\n".join(lab.render(table, "markdown") for table in lab.tables(study)))
        trained = next(p for p in reversed(study.plan) if p.row == recipe.orders[0][-1])
        run = out / "runs" / trained.run
        seen = ["efdm", "dg", "analyse", "histogram", "--checkpoint", str(run), "-o", str(out / "features")]
        files = {
            "the four styles": out / SHEET, "the table as a plot": _plotted(study, out / PLOT), "all tables": out / TABLES,
            f"a trained classifier ({training_name(read_settings(run))})": run / MODEL,
            "see its features": shlex.join(seen),
            "your own pictures": "efdm dg train --data FOLDER --test-domains DOMAIN -o OUT",
        }  # fmt: skip
        console.print()
        for what, path in files.items():
            console.print(f"{what}: {path}", soft_wrap=True, markup=False, highlight=False)


def _table(study: lab.Study) -> Table:
    """The main table in plain words; the usual caption goes into the file."""
    made = lab.accuracy_table(study)
    first, *_, last = study.recipe.orders[0]
    # rounded first, so that the difference is that of the numbers shown
    averages = {row: round(statistics.fmean(numbers(study).averages(row).values()), 1) for row in (first, last)}
    gain = averages[last] - averages[first]
    caption = [
        "A column is the style that was new: accuracy in % over all its digits, of a training on the three others.",
        f"On average {last} has {averages[last]:.1f} % right, {first} {averages[first]:.1f} %: {gain:+.1f} points.",
    ]
    if len({planned.seed for planned in study.plan}) == 1:
        caption.append("One seed can mislead by some points; --seeds 5 takes longer and gives mean ± standard deviation.")
    else:
        caption.append(f"Mean ± {STDS[study.recipe.std].words} over seeds.")
        caption.append(contrast_sentence(difference(numbers(study), first, last)))
    return replace(made, title="Accuracy in a style that was not trained on", caption=caption)


def domain_sheet(data: DomainSet) -> Tensor:
    """A row for each domain, a column for each class: the first picture of each."""
    rows = []
    for domain in data.domain_names:
        of_domain = data.select(domain)
        labels = data.labels[of_domain].tolist()
        rows.append([data.images[of_domain[labels.index(k)]] / 255 for k in range(len(data.classes))])
    return sheet(rows, row_labels=data.domain_names, column_labels=data.classes, cell=96, title="Ten classes, four domains")


def _plotted(study: lab.Study, path: Path) -> str:
    """Where the plot is, or what it needs."""
    try:
        plot(study, path)
    except ImportError:
        return "needs matplotlib: pip install matplotlib"
    return str(path)


def plot(study: lab.Study, path: Path) -> None:
    """The table as bars: a group for each domain and the average, a dot for each seed."""
    found = numbers(study)
    figure = new_figure(7.2, 3.4)
    axes = figure.subplots()
    groups, width = [*found.columns, AVERAGE], 0.8 / len(found.rows)
    for number, row in enumerate(found.rows):
        by_group = [*(found.found[row][column] for column in found.columns), found.averages(row)]
        at = [group + (number - (len(found.rows) - 1) / 2) * width for group in range(len(groups))]
        means = [statistics.fmean(values.values()) for values in by_group]
        bars = axes.bar(at, means, 0.92 * width, color=colour_of(number), label=row)
        axes.bar_label(bars, fmt="%.0f", fontsize=8, color="white", label_type="center")
        for x, values in zip(at, by_group, strict=True):
            if len(values) > 1:
                axes.plot([x] * len(values), list(values.values()), ".", color="black", markersize=3)
    axes.set_xticks(range(len(groups)), [*(f"{with_spaces(d)}\nis new" for d in found.columns), AVERAGE])
    axes.set_ylim(0, 105)
    axes.set_ylabel("accuracy in %", fontsize=9)
    axes.set_title("Accuracy in a style that was not trained on", fontsize=10, loc="left")
    axes.legend(fontsize=8, frameon=False, ncols=len(found.rows), loc="upper right", bbox_to_anchor=(1, 1.13))
    plain(axes)
    save(figure, path)
