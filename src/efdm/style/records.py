"""What a run leaves behind: JSON lines, TensorBoard's files, preview sheets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.data import ImageSet, write_picture
from efdm.data.sheets import sheet
from efdm.models import StyleNetwork
from efdm.style.transfer import transfer

PHASES = ("reconstruct", "style")  # in the order they are run


class Log:
    """JSON lines, and TensorBoard where it is installed. A resumed run keeps the lines up to its checkpoint, which is the
    (phase, iteration) ``keep``; a new one keeps none."""

    def __init__(self, run: Path, *, keep: tuple[str, int] | None = None) -> None:
        path = run / "log.jsonl"
        kept = _until(path.read_text(), *keep) if keep is not None and path.exists() else ""
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


def _until(lines: str, phase: str, iteration: int) -> str:
    last = (PHASES.index(phase), iteration)
    kept = ""
    for line in lines.splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # the machine stopped while it was written
        record = json.loads(line)
        if (PHASES.index(record["phase"]), record["iteration"]) > last:
            break
        kept += line
    return kept


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


@torch.no_grad()
def preview(network: StyleNetwork, contents: ImageSet, styles: ImageSet, path: Path, device: torch.device) -> None:
    """The first contents in the first styles, as a sheet."""

    def pictures(images: ImageSet, count: int) -> list[Tensor]:
        return [images[i].to(device)[None].float() / 255 for i in range(min(count, len(images)))]

    rows: list[list[Tensor | None]] = []
    columns, down = pictures(styles, 5), pictures(contents, 4)
    rows.append([None, *(s[0].cpu() for s in columns)])
    for content in down:
        made = [transfer(network, content, network.features(s)).clamp(0, 1)[0].cpu() for s in columns]
        rows.append([content[0].cpu(), *made])
    write_picture(path, sheet(rows, cell=224))
