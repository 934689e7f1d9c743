"""The log of a run: JSON lines, and TensorBoard where it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from efdm.training.files import Record, append_line, read_lines, rounded, write_lines


class Log:
    """``log.jsonl`` in ``folder``, and TensorBoard's files where it is installed.

    A resumed run keeps the lines up to ``keep``, the (phase, iteration) of its checkpoint. ``phases`` are in training order.
    """

    def __init__(self, folder: Path, *, phases: Sequence[str] = ("train",), keep: tuple[str, int] | None = None) -> None:
        self.path, self.folder, self.keep = folder / "log.jsonl", folder / "tensorboard", keep
        write_lines(self.path, _until(self.path, phases, *keep) if keep is not None and self.path.exists() else ())
        self.boards: dict[str, Any] = {}

    def write(self, phase: str, iteration: int, values: Mapping[str, float]) -> None:
        numbers = {name: rounded(value) for name, value in values.items()}
        append_line(self.path, {"phase": phase, "iteration": iteration, **numbers})
        if phase not in self.boards:
            self.boards[phase] = self._board(phase)
        if (board := self.boards[phase]) is not None:
            for name, value in values.items():
                board.add_scalar(f"{phase}/{name}", value, iteration)
            board.flush()

    def _board(self, phase: str) -> Any:
        """Return a writer for a phase. Each phase has its own folder, because TensorBoard drops lines by iteration alone."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return None
        first = self.keep[1] + 1 if self.keep is not None and self.keep[0] == phase else 0
        return SummaryWriter(self.folder / phase, purge_step=first)

    def close(self) -> None:
        for board in self.boards.values():
            if board is not None:
                board.close()


def _until(path: Path, phases: Sequence[str], phase: str, iteration: int) -> Iterator[Record]:
    def place(record: Record) -> tuple[int, int]:
        return phases.index(record["phase"]), record["iteration"]

    last = (phases.index(phase), iteration)
    return takewhile(lambda record: place(record) <= last, read_lines(path, ("phase", "iteration")))
