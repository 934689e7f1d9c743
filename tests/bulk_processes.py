"""Processes of jobs for tests, in a module that the workers of Ray can import."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from efdm.data import Picture, write_picture
from efdm.data.bulk import Process

BLACK, WHITE = torch.zeros(3, 6, 5), torch.ones(3, 6, 5)


@dataclass(frozen=True)
class Negatives:
    """Maps a picture to its negative and, in a folder, notes each start of a process.

    White kills the worker the first time, black every time.
    """

    folder: Path

    def __call__(self, device: str) -> Process:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{os.getpid()}").touch()
        return self.negative

    def negative(self, picture: Picture) -> Mapping[str, Picture]:
        killed = self.folder / "killed"
        white = torch.equal(picture.rgb, WHITE) and not killed.exists()
        if white:
            killed.touch()
        if white or torch.equal(picture.rgb, BLACK):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"-negative": Picture(1 - picture.rgb)}


def write_pictures(folder: Path, count: int) -> None:
    """Write pictures p0.png, p1.png and so on, of noise."""
    for i in range(count):
        write_picture(folder / f"p{i}.png", torch.rand(3, 6, 5))
