from __future__ import annotations

import io
import re

import pytest

pytest.importorskip("typer")

from rich.console import Console
from rich.progress import Progress

from efdm.apps.train_bars import columns

TOLD = ("12.3/s", "loss 0.123", "content 0.123", "style 0.0123", "identity 0.123", "sliced 0.123", "gradient 12.3")


def shown(width: int) -> list[str]:
    """The lines of a training in its longest phase, as a terminal of this width has them."""
    console, clock = Console(width=width, file=io.StringIO(), force_terminal=True, no_color=True), iter(range(100))
    bars = Progress(*columns(), console=console, get_time=lambda: 100.0 * next(clock), speed_estimate_period=1e6)
    bars.add_task("reading pictures", total=5000, completed=5000, told=())
    task = bars.add_task("style", total=160_000, told=())
    for done in (79_900, 79_950, 80_000):
        bars.update(task, completed=done, told=TOLD)
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
