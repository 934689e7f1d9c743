"""The demo: digits in four styles, three methods, one table and one plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from efdm.data import write_picture
from efdm.data.domains import DomainSet
from efdm.data.sheets import sheet
from efdm.lab.analyses.drawing import colour_of, new_figure, plain, save, with_spaces
from efdm.lab.compare import contrast_sentence, difference
from efdm.lab.dg_preparation import prepare_dg_sweep
from efdm.lab.folder import Study
from efdm.lab.published import AVERAGE
from efdm.lab.recipe import load_recipe
from efdm.lab.rendering import render
from efdm.lab.report import Table, accuracy_table, tables
from efdm.lab.results import numbers
from efdm.lab.selection import STDS
from efdm.lab.sweep import run
from efdm.progress import Report, ignore
from efdm.recognition.workers import available_cores

RECIPE = "digits_demo"
SHEET, PLOT, TABLES = "domains.png", "accuracy.png", "tables.md"


def run_demo(
    out: Path,
    *,
    seeds: Sequence[int] = (0,),
    iterations: int | None = None,
    lanes: int | None = None,
    progress: Report = ignore,
) -> Study:
    """Run or resume the recipe of the demo in ``out``, and write a sheet of the domains, a plot and all tables.

    ``lanes`` runs are trained at a time, by default one per core. ``iterations`` overrides the recipe's number.
    """
    lengths = {"iterations": iterations} if iterations else {}
    recipe, data, changes = prepare_dg_sweep(load_recipe(RECIPE), [], out, pacs={}, changes=lengths)
    study = run(recipe, data, out, seeds=seeds, lanes=lanes or available_cores(), progress=progress, **changes)
    write_picture(out / SHEET, domain_sheet(data))
    plot_accuracy(study, out / PLOT)
    (out / TABLES).write_text("\n".join(render(table, "markdown") for table in tables(study)))
    return study


def demo_table(study: Study) -> Table:
    """Return the accuracy table with a caption for readers who are new to the subject."""
    first, *_, last = study.recipe.orders[0]
    # rounded before subtracting: the gain must agree with the two averages shown
    averages = {row: round(statistics.fmean(numbers(study).averages(row).values()), 1) for row in (first, last)}
    gain = averages[last] - averages[first]
    caption = [
        "Each column is the held-out style: accuracy in % over all its digits, after training on the three other styles.",
        f"Average accuracy: {last} {averages[last]:.1f} %, {first} {averages[first]:.1f} %, a gain of {gain:+.1f} points.",
    ]
    if len({planned.seed for planned in study.plan}) == 1:
        caption.append("One seed can be off by several points; five seeds give mean ± standard deviation.")
    else:
        caption.append(f"Mean ± {STDS[study.recipe.std].words} over seeds.")
        caption.append(contrast_sentence(difference(numbers(study), first, last)))
    return replace(accuracy_table(study), title="Accuracy in the held-out style", caption=caption)


def domain_sheet(data: DomainSet) -> Tensor:
    """Return one picture with a row per domain and a column per class, filled with the first picture of each."""
    rows = []
    for domain in data.domain_names:
        indices = data.select(domain)
        labels = data.labels[indices].tolist()
        rows.append([data.images[indices[labels.index(k)]] / 255 for k in range(len(data.classes))])
    return sheet(rows, row_labels=data.domain_names, column_labels=data.classes, cell=96, title="Ten classes, four domains")


def plot_accuracy(study: Study, path: Path) -> None:
    """Draw the accuracy table as bars: a group per domain and one for the average, with a dot per seed."""
    shown = numbers(study)
    figure = new_figure(7.2, 3.4)
    axes = figure.subplots()
    groups, width = [*shown.columns, AVERAGE], 0.8 / len(shown.rows)
    for number, row in enumerate(shown.rows):
        by_group = [*(shown.scores[row][column] for column in shown.columns), shown.averages(row)]
        x_positions = [group + (number - (len(shown.rows) - 1) / 2) * width for group in range(len(groups))]
        means = [statistics.fmean(values.values()) for values in by_group]
        bars = axes.bar(x_positions, means, 0.92 * width, color=colour_of(number), label=row)
        axes.bar_label(bars, fmt="%.0f", fontsize=8, color="white", label_type="center")
        for x, values in zip(x_positions, by_group, strict=True):
            if len(values) > 1:
                axes.plot([x] * len(values), list(values.values()), ".", color="black", markersize=3)
    axes.set_xticks(range(len(groups)), [*(f"{with_spaces(d)}\nheld out" for d in shown.columns), AVERAGE])
    axes.set_ylim(0, 105)
    axes.set_ylabel("accuracy in %", fontsize=9)
    axes.set_title("Accuracy in the held-out style", fontsize=10, loc="left")
    axes.legend(fontsize=8, frameon=False, ncols=len(shown.rows), loc="upper right", bbox_to_anchor=(1, 1.13))
    plain(axes)
    save(figure, path)
