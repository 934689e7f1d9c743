"""Progress reports, which long-running functions pass to their ``progress`` callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """``done`` of ``total`` steps of the task ``label``. ``values`` are numbers to show with it, such as the loss."""

    label: str
    done: int
    total: int
    values: Mapping[str, float] = field(default_factory=dict)


Report = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Do nothing: the default callback."""
