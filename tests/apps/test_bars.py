from __future__ import annotations

import io
import re

import pytest

pytest.importorskip("typer")

from rich.console import Console
from rich.progress import Progress

from efdm.apps.bars import Drawn, Lines, columns, progress, shortened

TOLD = ("12.3/s", "loss 0.123", "content 0.123", "style 0.0123", "identity 0.123", "sliced 0.123", "gradient 12.3")


def terminal(width: int) -> Console:
    return Console(width=width, file=io.StringIO(), force_terminal=True, no_color=True)


def shown(width: int) -> list[str]:
    """The lines of a training in its longest phase, as a terminal of this width has them."""
    console, clock = terminal(width), iter(range(100))
    bars = Progress(*columns(), console=console, get_time=lambda: 100.0 * next(clock), speed_estimate_period=1e6)
    bars.add_task("reading pictures", total=5000, completed=5000, count="5000/5000", told=())
    task = bars.add_task("style", total=160_000, count="", told=())
    for done in (79_900, 79_950, 80_000):
        bars.update(task, completed=done, count=f"{done}/160000", told=TOLD)
    with console.capture() as text:
        console.print(bars.get_renderable())
    return text.get().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_is_done_the_bar_the_count_and_the_time_left_are_never_cut(width: int) -> None:
    reading, style = shown(width)
    assert reading.startswith("reading pictures ━━━━━━━━━━━━━━━━━━━━")
    assert "5000/5000" in reading
    assert re.match(r"style +━{10}\W+ 80000/160000 \d+:\d\d:\d\d ", style)
    assert "…" not in reading + style


@pytest.mark.parametrize(("width", "count"), [(60, 0), (80, 2), (120, 4), (200, len(TOLD))])
def test_losses_are_told_as_far_as_there_is_room_for_whole_ones(width: int, count: int) -> None:
    assert shown(width)[1].rstrip().endswith("  ".join(TOLD[:count]))
    assert [word in shown(width)[1] for word in TOLD] == [place < count for place in range(len(TOLD))]


def test_a_long_name_is_shortened_and_the_time_left_stays() -> None:
    console = terminal(80)
    name = "efdmix-halves-flow, tested on art_painting, seed 0"
    with Drawn(console, period=180) as bars:
        for done in (1000, 1010):
            bars.show(name, done, 5000, told=TOLD)
    with console.capture() as text:
        console.print(bars.bars.get_renderable())
    (line,) = text.get().splitlines()
    assert re.match(r"efdmix-halves-flow…_painting, seed 0 ━{4}.* 1010/5000 (\d:\d\d:\d\d|-:--:--)", line), line
    assert shortened("short", 5) == "short"


class Log:
    """What lines there are, when the clock shows these seconds."""

    def __init__(self) -> None:
        self.now, self.file = 0.0, io.StringIO()
        self.lines = Lines(Console(file=self.file, width=20), clock=lambda: self.now)

    def show(self, now: float, *words: object, **more: object) -> list[str]:
        self.now = now
        before = len(self.file.getvalue())
        self.lines.show(*words, **more)
        return self.file.getvalue()[before:].splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_in_a_log_a_line_comes_first_and_last_and_when_it_is_news(log: Log) -> None:
    words = ("7.0/s", "loss 0.5")
    assert log.show(0, "erm, seed 0", 10, 1000, told=words, pace=10) == [
        "erm, seed 0: 10/1000, 0:01:39 left, 7.0/s, loss 0.5"
    ]
    assert log.show(1, "erm, seed 0", 500, 1000) == []  # further by half, but within a second
    assert log.show(8, "erm, seed 0", 100, 1000) == []  # not by a tenth
    assert log.show(9, "erm, seed 0", 110, 1000) == ["erm, seed 0: 110/1000, 0:01:20 left"]  # by what was seen, not by pace
    assert log.show(38, "erm, seed 0", 111, 1000) == []
    assert log.show(39, "erm, seed 0", 112, 1000) == ["erm, seed 0: 112/1000, 0:05:40 left"]
    assert log.show(40, "erm, seed 0", 1000, 1000, told=words) == ["erm, seed 0: 1000/1000, 7.0/s, loss 0.5"]
    assert log.show(41, "erm, seed 0", 1000, 1000) == []


def test_in_a_log_each_thing_has_its_own_lines_and_may_begin_anew(log: Log) -> None:
    assert log.show(0, "trainings", 0, 4) == ["trainings: 0/4"]
    assert log.show(9, "a", 1, 2) == ["a: 1/2"]
    assert log.show(9, "trainings", 0.5, 4, count="0/4") == ["trainings: 0/4, 0:01:03 left"]
    assert log.show(9, "a", 2, 2) == ["a: 2/2"]
    assert log.show(9, "a", 1, 9) == ["a: 1/9"]


def test_bars_are_for_terminals() -> None:
    assert isinstance(progress(terminal(80)), Drawn)
    assert isinstance(progress(Console(file=io.StringIO())), Lines)
