"""The progress of what takes long: bars at a terminal, plain lines in a log.

with progress(console) as shown:
    shown.show("reading pictures", done, total)
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

BAR = 20
BESIDE = 44  # columns that a bar, its count and its time left take at most; what is done has the rest
GAP = "  "
SHARE, SECONDS, LEAST = 0.1, 30.0, 5.0  # a line after a tenth, but not within some seconds; or after half a minute

Self = TypeVar("Self", bound="Shown")


class Shown(ABC):
    """Several things that are under way, each by its name."""

    @abstractmethod
    def show(
        self, what: str, done: float, total: int, *, told: Sequence[str] = (), count: str = "", pace: float = 0.0
    ) -> None:
        """``told`` are further words, the most important first; ``count`` stands for done/total, where that is no whole
        number; ``pace`` (of ``done`` in a second) helps to tell the time left as long as there is nothing to compare."""

    @abstractmethod
    def drop(self, what: str) -> None:
        """Nothing more will be said of it."""

    @abstractmethod
    def stop(self) -> None:
        """Before something else is printed."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None) -> None:
        self.stop()


def progress(console: Console, *, period: float = 180.0) -> Shown:
    """``period``: the seconds from which a bar tells the time left; a training has quick and slow parts."""
    return Drawn(console, period) if console.is_interactive else Lines(console)


# --- bars ------------------------------------------------------------------------------------------------------------


class Drawn(Shown):
    def __init__(self, console: Console, period: float) -> None:
        self.bars = Progress(*columns(), console=console, speed_estimate_period=period)
        self._room = max(BAR, console.width - BESIDE)
        self._tasks: dict[str, TaskID] = {}

    def show(
        self, what: str, done: float, total: int, *, told: Sequence[str] = (), count: str = "", pace: float = 0.0
    ) -> None:
        self.bars.start()  # at the first news: where there is none, no line is left empty
        if what not in self._tasks:
            self._tasks[what] = self.bars.add_task(shortened(what, self._room), total=total, count="", told=())
        changed: dict[str, Any] = {"count": count or f"{done:.0f}/{total}", "told": told}
        self.bars.update(self._tasks[what], completed=done, total=total, **changed)

    def drop(self, what: str) -> None:
        if what in self._tasks:
            self.bars.remove_task(self._tasks.pop(what))

    def stop(self) -> None:
        if self.bars.live.is_started:
            self.bars.stop()


def shortened(name: str, room: int) -> str:
    """Without its middle, if it is too long: names differ at their ends."""
    if len(name) <= room:
        return name
    end = (room - 1) // 2
    return f"{name[: room - 1 - end]}…{name[len(name) - end :]}"


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
        TextColumn("{task.description}", markup=False),  # never wrapped, by itself
        BarColumn(bar_width=BAR, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[count]}", justify="right"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        Told(),
    )


# --- lines -----------------------------------------------------------------------------------------------------------


@dataclass
class _Line:
    """Where something was at first, and where when it was told of last."""

    began: float
    first: float
    at: float
    done: float


class Lines(Shown):
    """A line when something begins and when it ends, and now and then in between."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._lines: dict[str, _Line] = {}

    def show(
        self, what: str, done: float, total: int, *, told: Sequence[str] = (), count: str = "", pace: float = 0.0
    ) -> None:
        now, before = self._clock(), self._lines.get(what)
        if before is None or done < before.done:  # less than before: it began anew
            before = self._lines[what] = _Line(now, done, now, done)
        elif not self._due(before, now, done, total):
            return
        if done > before.first and now > before.began:
            pace = (done - before.first) / (now - before.began)
        left = [f"{timedelta(seconds=round((total - done) / pace))} left"] if pace > 0 and done < total else []
        line = ", ".join([f"{what}: {count or f'{done:.0f}/{total}'}", *left, *told])
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        before.at, before.done = now, done

    def _due(self, before: _Line, now: float, done: float, total: int) -> bool:
        if done >= total:
            return before.done < total
        since = now - before.at
        return since >= SECONDS or (since >= LEAST and done - before.done >= SHARE * total)

    def drop(self, what: str) -> None:
        self._lines.pop(what, None)

    def stop(self) -> None:
        """Lines do not stand in the way of others."""
