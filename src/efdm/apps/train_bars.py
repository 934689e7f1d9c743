"""The line of progress of a training: it keeps its bar and its time left where a terminal is narrow."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

BAR = 20
GAP = "  "


class Fitting:
    """As many of these words as there is room for; what comes first is worth most."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(0, min(len(GAP.join(self.words)), options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = self.words
        while len(GAP.join(words)) > options.max_width:
            words = words[:-1]
        yield Text(GAP.join(words), no_wrap=True)


class Told(ProgressColumn):
    def render(self, task: Task) -> Fitting:
        return Fitting(task.fields["told"])


def columns() -> tuple[ProgressColumn, ...]:
    """What is done, bar, count, time left, and as much of the losses as fits: the only column that a table may narrow."""
    return (
        TextColumn("{task.description}"),  # never wrapped, by itself
        BarColumn(bar_width=BAR, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        Told(),
    )
