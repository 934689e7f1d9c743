"""What a run tells while it goes: JSON lines, and TensorBoard's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Log:
    """JSON lines, and TensorBoard where it is installed. A resumed run keeps the lines up to its checkpoint, which is the
    (phase, iteration) ``keep``; a new one keeps none. ``phases`` are the parts of a run in their order."""

    def __init__(self, run: Path, *, phases: Sequence[str] = ("train",), keep: tuple[str, int] | None = None) -> None:
        path = run / "log.jsonl"
        kept = _until(path.read_text(), phases, *keep) if keep is not None and path.exists() else ""
        path.write_text(kept)
        self.folder, self.keep = run / "tensorboard", keep
        self.boards: dict[str, Any] = {}
        self.file = path.open("a")

    def write(self, phase: str, iteration: int, values: Mapping[str, float]) -> None:
        rounded = {k: float(f"{v:.6g}") for k, v in values.items()}
        self.file.write(json.dumps({"phase": phase, "iteration": iteration, **rounded}) + "\n")
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


def _until(lines: str, phases: Sequence[str], phase: str, iteration: int) -> str:
    last = (phases.index(phase), iteration)
    kept = ""
    for line in lines.splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the machine stopped while it was written
        record = json.loads(line)
        if (phases.index(record["phase"]), record["iteration"]) > last:
            break
        kept += line
    return kept
