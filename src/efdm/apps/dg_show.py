"""Tables and progress of ``efdm dg``, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from efdm import dg
from efdm.apps.bars import progress
from efdm.dg.settings import Settings
from efdm.lab.rendering import render
from efdm.lab.report import Table
from efdm.progress import Progress


def show_tables(console: Console, tables: Sequence[Table]) -> None:
    """Tables with their captions. What is not a terminal gets plain text."""
    for table in tables:
        if not console.is_terminal:
            console.print(render(table), markup=False, highlight=False, soft_wrap=True)
            continue
        console.print(f"\n{table.title}", style="bold", markup=False, highlight=False)
        if table.rows:
            console.print(_grid(table))
        for sentence in table.caption:
            console.print(Padding(Text(sentence, style="dim"), (0, 0, 0, 1)))


def _grid(table: Table) -> Grid:
    # "here" in every row says nothing
    shown = [i for i, name in enumerate(table.head) if name != "source" or any(row[i] != "here" for row in table.rows)]
    made = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i in shown:
        words = [word for row in (table.head, *table.rows) for word in row[i].split()]
        widest = max(map(len, words), default=1)  # lines may break between words alone
        made.add_column(Text(table.head[i]), justify="right" if i else "left", min_width=widest)
    source = table.head.index("source") if "source" in table.head else None
    for row in table.rows:
        beside = source is not None and row[source] != "here"
        made.add_row(*(Text(row[i]) for i in shown), style="dim" if beside else None)
    return made


def training_name(settings: Settings) -> str:
    """A training in a few words, by the shorter side of its domains."""
    by_test = 0 < len(settings.test_domains) <= len(settings.train_domains)
    side = f"tested on {', '.join(settings.test_domains)}" if by_test else f"trained on {', '.join(settings.train_domains)}"
    return f"{settings.method}, {side}, seed {settings.seed}"


class Bars:
    """All trainings, and each that is under way: as bars at a terminal, as lines in a log."""

    def __init__(self, console: Console) -> None:
        self._shown = progress(console)
        self._finished, self._wanted, self._shares = 0, 0, dict[str, float]()

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self._shown.stop()

    def reading(self, at: Progress) -> None:
        self._shown.show(at.label, at.done, at.total)

    def report(self, at: Progress) -> None:
        """Show the progress of a sweep: the number of finished runs, and the steps of each run."""
        if at.label == "runs":
            self._finished, self._wanted = at.done, at.total
            self._shares = {label: share for label, share in self._shares.items() if share < 1}
            self._show_all()
        elif "per_second" in at.values:
            self._shares[at.label] = at.done / at.total
            pace = at.values["per_second"]
            words = (f"{pace:.3g}/s", *(f"{name} {value:.3g}" for name, value in at.values.items() if name != "per_second"))
            self._shown.show(at.label, at.done, at.total, told=words, pace=pace)
            self._show_all()
            if at.done == at.total:
                self._shown.drop(at.label)
        else:
            self.reading(at)

    def step(self, told: dg.Progress) -> None:
        pace = f"{told.per_second:.3g}/s" if told.per_second < 100 else f"{told.per_second:.0f}/s"
        words = (pace, *(f"{name} {value:.3g}" for name, value in told.losses.items()))
        name = training_name(told.settings)
        self._shown.show(name, told.iteration, told.iterations, told=words, pace=told.per_second)

    def _show_all(self) -> None:
        count = self._finished + sum(share == 1 for share in self._shares.values())
        done = self._finished + sum(self._shares.values())
        self._shown.show("runs", done, self._wanted, count=f"{count}/{self._wanted}")
