"""Tables and progress of ``efdm dg``, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid
from rich.text import Text

from efdm import dg, lab
from efdm.dg.settings import Settings
from efdm.lab.rendering import render
from efdm.lab.tables import Table


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
    """A bar for all trainings, and one for each that is under way."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}", justify="right"), TimeRemainingColumn(), TextColumn("{task.fields[told]}"),
        )  # fmt: skip
        # a training has quick and slow parts: the time left is told from the last minutes
        self._bars = Progress(*columns, console=console, speed_estimate_period=180)
        self._tasks: dict[str, TaskID] = {}
        self._finished, self._shares = 0, dict[str, float]()

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        if self._bars.live.is_started:
            self._bars.stop()

    def reading(self, done: int, total: int) -> None:
        self._show("reading pictures", done, total, f"{done}/{total}")

    def trainings(self, told: lab.Progress) -> None:
        self._finished = told.finished
        if told.planned is not None:
            self._shares.pop(told.planned.run, None)
        self._show_all(told.wanted)

    def step(self, told: dg.Progress) -> None:
        self._shares[told.run] = told.iteration / told.iterations
        losses = "  ".join(f"{name} {value:.3g}" for name, value in told.losses.items())
        pace = f"{told.per_second:.3g}/s" if told.per_second < 100 else f"{told.per_second:.0f}/s"
        name = training_name(told.settings)
        self._show(name, told.iteration, told.iterations, f"{told.iteration}/{told.iterations}", f"{pace}  {losses}")
        if "trainings" in self._tasks:
            self._show_all()
            if told.iteration == told.iterations:
                self._bars.remove_task(self._tasks.pop(name))

    def _show_all(self, total: int | None = None) -> None:
        count = self._finished + sum(share == 1 for share in self._shares.values())
        done = self._finished + sum(self._shares.values())
        if total is None:
            total = int(self._bars.tasks[self._bars.task_ids.index(self._tasks["trainings"])].total or 0)
        self._show("trainings", done, total, f"{count}/{total}")

    def _show(self, name: str, done: float, total: int, count: str, told: str = "") -> None:
        self._bars.start()  # at the first news: where there is none, no line is left empty
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total, count="", told="")
        changed: dict[str, Any] = {"completed": done, "total": total, "count": count, "told": told}
        self._bars.update(self._tasks[name], **changed)
