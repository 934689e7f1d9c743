"""What a run tells while it goes: JSON lines, and TensorBoard's files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from efdm.training.files import Record, read_lines, rounded, write_lines


class Log:
    """JSON lines, and TensorBoard where it is installed. A resumed run keeps the lines up to its checkpoint, which is the
    (phase, iteration) ``keep``; a new one keeps none. ``phases`` are the parts of a run in their order."""

    def __init__(self, run: Path, *, phases: Sequence[str] = ("train",), keep: tuple[str, int] | None = None) -> None:
        path = run / "log.jsonl"
        write_lines(path, _until(path, phases, *keep) if keep is not None and path.exists() else ())
        self.folder, self.keep = run / "tensorboard", keep
        self.boards: dict[str, Any] = {}
        self.file = path.open("a")

    def write(self, phase: str, iteration: int, values: Mapping[str, float]) -> None:
        told = {name: rounded(value) for name, value in values.items()}
        self.file.write(json.dumps({"phase": phase, "iteration": iteration, **told}) + "\n")
        self.file.flush()
        if phase not in self.boards:
            self.boards[phase] = self._board(phase)
        if (board := self.boards[phase]) is not None:
            for name, value in values.items():
                board.add_scalar(f"{phase}/{name}", value, iteration)
            board.flush()

    def _board(self, phase: str) -> Any:
        """A folder for each phase: TensorBoard forgets the lines after a checkpoint by their iteration alone."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return None
        first = self.keep[1] + 1 if self.keep is not None and self.keep[0] == phase else 0
        return SummaryWriter(self.folder / phase, purge_step=first)

    def close(self) -> None:
        for opened in (self.file, *self.boards.values()):
            if opened is not None:
                opened.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _until(path: Path, phases: Sequence[str], phase: str, iteration: int) -> Iterator[Record]:
    def place(record: Record) -> tuple[int, int]:
        return phases.index(record["phase"]), record["iteration"]

    last = (phases.index(phase), iteration)
    return takewhile(lambda record: place(record) <= last, read_lines(path, ("phase", "iteration")))
