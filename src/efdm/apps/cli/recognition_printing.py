"""What the commands of ``efdm dg`` and ``efdm reid`` print: tables, runs, warnings and accuracies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from efdm.apps.cli.printing import console, print_text, print_warning
from efdm.data.datasets import uneven_classes
from efdm.data.domains import DomainSet
from efdm.lab.rendering import render
from efdm.lab.report import Table
from efdm.recognition.settings import RecognitionSettings, all_options
from efdm.reid import PROTOCOLS, PersonSets
from efdm.reid.evaluate import SCORES, Reranking
from efdm.text import first_few, plural

MAX_WORD = 30  # characters


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables with their captions: formatted in a terminal, as plain text elsewhere."""
    for table in tables:
        if not console.is_terminal:
            print_text(render(table))
            continue
        console.print(f"\n{table.title}", style="bold")
        if table.rows:
            console.print(_grid(table))
        for sentence in table.caption:
            console.print(Padding(Text(sentence, style="dim"), (0, 0, 0, 1)))


def _grid(table: Table) -> Grid:
    source = table.head.index("source") if "source" in table.head else None
    published = [source is not None and row[source] != "here" for row in table.rows]
    shown = [column for column in range(len(table.head)) if column != source or any(published)]
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in shown:
        words = [word for row in (table.head, *table.rows) for word in row[column].split()]
        widest = min(max(map(len, words), default=1), MAX_WORD)  # lines break between words, except in long file names
        justify: Any = "right" if column else "left"
        grid.add_column(Text(table.head[column]), justify=justify, min_width=widest, overflow="fold")
    for row, is_published in zip(table.rows, published, strict=True):
        grid.add_row(*(Text(row[column]) for column in shown), style="dim" if is_published else None)
    return grid


def print_run(settings: RecognitionSettings) -> None:
    """Print the method of a run with its options, the network and the number of iterations."""
    options = ", ".join(f"{name} {value}" for name, value in all_options(settings).items())
    method = f"{settings.method} ({options})" if options else settings.method
    stages = f" (stages {', '.join(settings.stages)})" if settings.methods[settings.method].inserts_layers() else ""
    print_text(
        f"{method} in {settings.backbone}{stages}, weights {Path(settings.weights).name}: "
        f"{plural(settings.iterations, 'iteration')} of {plural(settings.batch, 'picture')} on {settings.device}"
    )


def print_accuracy(title: str, counts: Mapping[str, Sequence[int]]) -> None:
    """Print one line per domain from counts of (correct, total)."""
    print_text(f"\naccuracy on {title}")
    for domain, (correct, total) in counts.items():
        share = f"{100 * correct / total:5.1f} %" if total else "    -  "
        print_text(f"  {share}  {domain} ({correct} of {total})")


def print_data_warnings(data: DomainSet | PersonSets, domains: Sequence[str] = (), test_domains: Sequence[str] = ()) -> None:
    """Print the notes of a data set, and the classes that some of ``domains`` (all by default) lack."""
    for note in data.notes:
        print_warning(note)
    if not isinstance(data, DomainSet):
        return
    if differences := uneven_classes(data, domains or data.domain_names, test_domains):
        print_warning(f"classes differ between domains: {'; '.join(differences)}; check the spelling of folder names")


def print_skipped(data: DomainSet | PersonSets, file: Path) -> None:
    """Print how many pictures were skipped, the first reasons, and the file that lists all of them."""
    if data.skipped:
        reasons = first_few([reason for _, reason in data.skipped])
        total = f" of {len(data) + len(data.skipped)}" if isinstance(data, DomainSet) else ""
        print_text(f"skipped {len(data.skipped)}{total} pictures ({reasons}); see {file}")


def print_scores(scores: Mapping[str, Mapping[str, Any]], reranking: Reranking = "none") -> None:
    """Print a row of retrieval scores for each test set, and the meaning of the protocols."""
    counts = ("queries", "gallery", "trials")
    rows = [
        [name, *(f"{100 * record[entry]:.1f}" for entry in SCORES.values()), record["protocol"],
         *(str(record[count]) for count in counts)]
        for name, record in scores.items()
    ]  # fmt: skip
    used = dict.fromkeys(record["protocol"] for record in scores.values())
    ranking = [] if reranking == "none" else [f"Re-ranked by {reranking} encoding: do not compare with other scores."]
    about = (f"{name}: {PROTOCOLS[name].about}." for name in used)
    caption = ["In %, averaged over trials. Queries without a match are not counted.", *ranking, *about]
    print_tables([Table("Scores of the test sets", ["data", *SCORES, "protocol", *counts], rows, caption)])


def print_trials(files: Sequence[Path]) -> None:
    """Print the files that list the queries and the galleries."""
    for path in files:
        print_text(f"queries and gallery: {path}")
