"""Progress of long-running functions: bars in a terminal, lines in a log.

with show_progress() as report:
    train(..., progress=report)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from rich import progress as bars
from rich.console import Console
from rich.table import Column
from rich.text import Text

from efdm.apps.cli.printing import messages
from efdm.progress import Progress, Report

BAR = 20  # characters
BAR_COUNT_TIME = 46  # maximum width of bar, count and time; labels get the rest
SHARE = 0.1  # fraction of the work after which a log prints the next line
MIN_SECONDS, MAX_SECONDS = 5.0, 30.0  # between two lines of a log
SPEED_PERIOD = 600.0  # seconds of progress from which the time left is estimated


@contextmanager
def show_progress(console: Console = messages) -> Iterator[Report]:
    """Yield a callback that shows the progress of every task by its label. Tasks with one step are not shown."""
    if not console.is_interactive:
        yield Lines(console)
        return
    display = Bars(console)
    try:
        yield display
    finally:
        display.stop()


def _values(values: Mapping[str, float]) -> list[str]:
    return [f"{name} {value:.3g}" for name, value in values.items()]


class Bars:
    """One bar per task. A finished bar is removed when the next task starts."""

    def __init__(self, console: Console) -> None:
        self.progress = bars.Progress(*columns(), console=console, speed_estimate_period=SPEED_PERIOD)
        self._label_width = max(BAR, console.width - BAR_COUNT_TIME)
        self._tasks: dict[str, bars.TaskID] = {}

    def __call__(self, report: Progress) -> None:
        if report.total == 1:
            return
        if report.label not in self._tasks:
            finished = {task.id for task in self.progress.tasks if task.finished}
            for label in [label for label, task in self._tasks.items() if task in finished]:
                self.progress.remove_task(self._tasks.pop(label))
            self._tasks[report.label] = self.progress.add_task(
                shorten(report.label, self._label_width), total=None, values=""
            )
        self.progress.start()
        self.progress.update(
            self._tasks[report.label],
            completed=report.done,
            total=report.total or None,
            values="  ".join(_values(report.values)),
        )

    def stop(self) -> None:
        self.progress.stop()


def shorten(label: str, width: int) -> str:
    """Return the label without its middle if it is too long, because labels differ at their ends."""
    end = (width - 1) // 2
    return label if len(label) <= width else f"{label[: width - 1 - end]}…{label[-end:]}"


class Values(bars.ProgressColumn):
    """The values of a report, cropped where the terminal is too narrow."""

    def render(self, task: bars.Task) -> Text:
        return Text(task.fields["values"], no_wrap=True, overflow="ellipsis")


def columns() -> tuple[bars.ProgressColumn, ...]:
    return (
        bars.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        bars.BarColumn(bar_width=BAR, table_column=Column(no_wrap=True)),
        bars.MofNCompleteColumn(table_column=Column(no_wrap=True)),
        bars.TimeRemainingColumn(table_column=Column(no_wrap=True)),
        Values(),
    )


@dataclass
class _Task:
    """The time and count of the first report, and of the last one that was printed."""

    first_time: float
    first_done: int
    last_time: float
    last_done: int


class Lines:
    """A line when a task starts, when it ends, and from time to time in between."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._tasks: dict[str, _Task] = {}

    def __call__(self, report: Progress) -> None:
        if report.total == 1:
            return
        now, done, total = self._clock(), report.done, report.total
        task = self._tasks.get(report.label)
        if task is None or done < task.last_done:
            task = self._tasks[report.label] = _Task(now, done, now, done)
        elif not _due(task, now, done, total):
            return
        words = [f"{report.label}: {done}/{total or '?'}"]
        if task.first_done < done < total and now > task.first_time:
            speed = (done - task.first_done) / (now - task.first_time)
            words.append(f"{timedelta(seconds=round((total - done) / speed))} left")
        line = ", ".join([*words, *_values(report.values)])
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        task.last_time, task.last_done = now, done


def _due(task: _Task, now: float, done: int, total: int) -> bool:
    if total and done >= total:
        return task.last_done < total
    elapsed = now - task.last_time
    return elapsed >= MAX_SECONDS or (elapsed >= MIN_SECONDS and done - task.last_done >= SHARE * total)
