"""Small runs of all tasks: a callback that records losses and interrupts, and what two runs are compared by."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.progress import Progress


class Watch:
    """Record the losses by label and iteration, and raise an error at one iteration, of all labels or of ``label``."""

    def __init__(self, stop: int = 0, error: type[BaseException] = KeyboardInterrupt, *, label: str = "") -> None:
        self.stop, self.error, self.label = stop, error, label
        self.losses: dict[tuple[str, int], float] = {}

    def __call__(self, progress: Progress) -> None:
        if "loss" not in progress.values:  # images are being read
            return
        self.losses[progress.label, progress.done] = progress.values["loss"]
        if progress.done == self.stop and self.label in ("", progress.label):
            raise self.error


def weights(trained: Any) -> Tensor:
    """Return the weights and buffers of a network, or of the network of a result, as one vector."""
    model: nn.Module = getattr(trained, "model", trained)
    return torch.cat([v.detach().flatten().double().cpu() for v in model.state_dict().values()])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_clock(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "per_second", "lanes")} for r in records]
