"""Progress of training steps as the one report."""

from __future__ import annotations

from collections.abc import Callable

from efdm import dg
from efdm.dg.settings import run_label
from efdm.progress import Progress, Report


def report_steps(report: Report) -> Callable[[dg.Progress], None]:
    """Return a callback that reports the iterations of a run."""

    def step(at: dg.Progress) -> None:
        values = {"steps/s": at.per_second, **at.losses}
        report(Progress(run_label(at.settings), at.iteration, at.iterations, values))

    return step
