import io
import re

import pytest
from rich.console import Console

from efdm.apps.cli.progress import Bars, Lines, show_progress
from efdm.progress import Progress

LOSSES = {"iterations/s": 12.3, "loss": 0.123, "content": 0.123, "style": 0.0123, "identity": 0.123, "gradient": 12.3}


def terminal(width: int) -> Console:
    return Console(width=width, file=io.StringIO(), force_terminal=True, no_color=True)


def drawn(bars: Bars, width: int) -> list[str]:
    console = terminal(width)
    with console.capture() as text:
        console.print(bars.progress.get_renderable())
    return text.get().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("label", ["reading pictures", "efdmix-halves-flow, tested on art_painting, seed 0"])
def test_bar_count_and_time_fit_into_the_terminal(width: int, label: str) -> None:
    with show_progress(terminal(width)) as bars:
        for done in (79_900, 79_950, 80_000):
            bars(Progress(label, done, 160_000, LOSSES))
        (line,) = drawn(bars, width)
    assert re.search(r"━{10}\W+ +80000/160000 (-:--:--|\d:\d\d:\d\d)", line), line
    assert line.startswith(label[:10])
    assert label[-10:] in line
    assert width < 200 or "gradient 12.3" in line


def test_a_finished_bar_is_removed_when_the_next_task_starts() -> None:
    with show_progress(terminal(120)) as bars:
        bars(Progress("runs", 1, 4))
        bars(Progress("reading", 50, 50))
        assert ["reading" in line for line in drawn(bars, 120)] == [False, True]
        bars(Progress("erm", 1, 9))
        assert [line.split()[0] for line in drawn(bars, 120)] == ["runs", "erm"]
        bars(Progress("erm", 9, 9))
        bars(Progress("efdmix", 1, 9))
        assert [line.split()[0] for line in drawn(bars, 120)] == ["runs", "efdmix"]


def test_one_step_is_shown_while_it_runs() -> None:
    console = terminal(80)
    with show_progress(console) as bars:
        bars(Progress("stylizing", 0, 1))
        assert [line.split()[0] for line in drawn(bars, 80)] == ["stylizing"]
        bars(Progress("stylizing", 1, 1))
        assert bars.progress.finished
    assert bars.progress.live.transient


def test_a_log_has_lines_instead_of_bars() -> None:
    with show_progress(Console(file=io.StringIO())) as lines:
        assert isinstance(lines, Lines)
    with show_progress(terminal(80)) as bars:
        assert isinstance(bars, Bars)


class Log:
    """The lines that are printed at given times."""

    def __init__(self) -> None:
        self.now, self.file = 0.0, io.StringIO()
        self.lines = Lines(Console(file=self.file, width=20), clock=lambda: self.now)

    def show(self, now: float, label: str, done: int, total: int, **values: float) -> list[str]:
        self.now = now
        start = len(self.file.getvalue())
        self.lines(Progress(label, done, total, values))
        return self.file.getvalue()[start:].splitlines()


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_log_line_is_printed_first_and_last_and_after_a_while(log: Log) -> None:
    assert log.show(0, "erm, seed 0", 10, 1000, loss=0.5) == ["erm, seed 0: 10/1000, loss 0.5"]
    assert log.show(1, "erm, seed 0", 500, 1000) == []  # within 5 seconds
    assert log.show(8, "erm, seed 0", 100, 1000) == []  # less than a tenth
    assert log.show(9, "erm, seed 0", 110, 1000) == ["erm, seed 0: 110/1000, 0:01:20 left"]
    assert log.show(38, "erm, seed 0", 111, 1000) == []
    assert log.show(39, "erm, seed 0", 112, 1000) == ["erm, seed 0: 112/1000, 0:05:40 left"]
    assert log.show(40, "erm, seed 0", 1000, 1000, loss=0.25) == ["erm, seed 0: 1000/1000, loss 0.25"]
    assert log.show(41, "erm, seed 0", 1000, 1000) == []


def test_tasks_have_separate_lines_and_can_start_again(log: Log) -> None:
    assert log.show(0, "runs", 0, 4) == ["runs: 0/4"]
    assert log.show(9, "a", 1, 2) == ["a: 1/2"]
    assert log.show(9, "a", 2, 2) == ["a: 2/2"]
    assert log.show(9, "a", 1, 9) == ["a: 1/9"]


def test_a_task_of_one_step_is_not_shown(log: Log) -> None:
    assert log.show(0, "stylizing", 0, 1) == []


def test_an_unknown_total(log: Log) -> None:
    assert log.show(0, "film.mp4", 1, 0) == ["film.mp4: 1/?"]
    assert log.show(40, "film.mp4", 9, 0) == ["film.mp4: 9/?"]
