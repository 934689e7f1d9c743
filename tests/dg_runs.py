"""Small classifier runs for tests: settings, weights to compare, and a callback that records losses and interrupts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.dg.settings import Settings
from efdm.dg.training import Trained
from efdm.progress import Progress


def settings(**changes: Any) -> Settings:
    plain = Settings(
        "digits", ("ink", "neon", "mosaic"), ("outline",), backbone="tiny", size=32, augmentation="digits", batch=16,
        iterations=6, lr=0.05, precision="fp32", speed="plain", device="cpu", log_every=1, evaluate_every=3, save_every=2,
    )  # fmt: skip
    plain = dataclasses.replace(plain, **changes)
    return dataclasses.replace(plain, batches="domains") if "labels" in plain.method else plain


def weights(trained: Trained) -> Tensor:
    return torch.cat([v.detach().flatten().double().cpu() for v in trained.model.state_dict().values()])


class Watch:
    """Record the losses by label and iteration, and raise an error at one iteration."""

    def __init__(self, stop: int = 0, error: type[BaseException] = KeyboardInterrupt, run: str = "") -> None:
        self.stop, self.error, self.run = stop, error, run
        self.losses: dict[tuple[str, int], float] = {}

    def __call__(self, progress: Progress) -> None:
        self.losses[progress.label, progress.done] = progress.values["loss"]
        if progress.done == self.stop and self.run in ("", progress.label):
            raise self.error


def without_clock(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "per_second", "lanes")} for r in records]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
