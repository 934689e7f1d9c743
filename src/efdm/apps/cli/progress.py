"""Progress of long-running functions: bars in a terminal, lines in a log.

Example::

    with show_progress() as report:
        train(..., progress=report)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Yield a callback that shows the progress of every task by its label.

    A task with one step is shown only while it runs, and only in a terminal.
    """
    if not console.is_interactive:
        yield Lines(console)
        return
    display = Bars(console)
    try:
        yield display
    finally:
        display.progress.stop()


def _values(report: Progress) -> list[str]:
    return [f"{name} {value:.3g}" for name, value in report.values.items()]


class Values(bars.ProgressColumn):
    """The values of a report, cropped where the terminal is too narrow."""

    def render(self, task: bars.Task) -> Text:
        return Text(task.fields["values"], no_wrap=True, overflow="ellipsis")


class Bars:
    """One bar per task. A finished bar is removed when the next task starts."""

    def __init__(self, console: Console) -> None:
        column = Column(no_wrap=True)
        self.progress = bars.Progress(
            bars.TextColumn("{task.description}", markup=False, table_column=column),
            bars.BarColumn(bar_width=BAR, table_column=column),
            bars.MofNCompleteColumn(table_column=column),
            bars.TimeRemainingColumn(table_column=column),
            Values(),
            console=console, speed_estimate_period=SPEED_PERIOD,
        )  # fmt: skip
        self._label_width = max(BAR, console.width - BAR_COUNT_TIME)
        self._tasks: dict[str, bars.TaskID] = {}

    def __call__(self, report: Progress) -> None:
        if report.label not in self._tasks:
            finished = {task.id for task in self.progress.tasks if task.finished}
            for label in [label for label, task in self._tasks.items() if task in finished]:
                self.progress.remove_task(self._tasks.pop(label))
            label = _shorten(report.label, self._label_width)
            self._tasks[report.label] = self.progress.add_task(label, start=report.total != 1, total=None, values="")
        self.progress.start()
        self.progress.live.transient = report.total == 1  # such a task pulses and leaves no line
        task = self._tasks[report.label]
        if report.done:
            self.progress.start_task(task)
        self.progress.update(task, completed=report.done, total=report.total or None, values="  ".join(_values(report)))


def _shorten(label: str, width: int) -> str:
    """Return the label without its middle if it is too long, because labels differ at their ends."""
    end = (width - 1) // 2
    return label if len(label) <= width else f"{label[: width - 1 - end]}…{label[-end:]}"


class Lines:
    """A line when a task starts, when it ends, and from time to time in between."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._printed: dict[str, tuple[float, int]] = {}  # time and count of the last line of each task
        self._started: dict[str, tuple[float, int]] = {}  # and of the first

    def __call__(self, report: Progress) -> None:
        if report.total == 1:
            return
        now, done, total = self._clock(), report.done, report.total
        last_time, last_done = self._printed.get(report.label, (now, done + 1))
        if done < last_done:  # a new task, or one that starts again
            self._started[report.label] = now, done
        elif total and done >= total:
            if last_done >= total:
                return
        elif now - last_time < MIN_SECONDS or (now - last_time < MAX_SECONDS and done - last_done < SHARE * total):
            return
        first_time, first_done = self._started[report.label]
        words = [f"{report.label}: {done}/{total or '?'}"]
        if first_done < done < total and now > first_time:
            left = (total - done) * (now - first_time) / (done - first_done)
            words.append(f"{timedelta(seconds=round(left))} left")
        self._console.print(", ".join([*words, *_values(report)]), markup=False, highlight=False, soft_wrap=True)
        self._printed[report.label] = now, done
