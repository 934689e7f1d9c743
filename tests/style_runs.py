"""Small style-transfer runs for tests: settings, weights to compare, and a callback that records losses and interrupts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.models import StyleNetwork
from efdm.progress import Progress
from efdm.style.settings import Settings


def settings(place: Path, **changes: Any) -> Settings:
    common = {
        "content": str(place / "content"), "style": str(place / "style"), "vgg": str(place / "random-vgg16.safetensors"),
        "size": 16, "short_side": 20, "batch": 2, "precision": "fp32", "speed": "plain", "device": "cpu", "lr": 1e-3,
    }  # fmt: skip
    return Settings.for_encoder(**{"encoder": "vgg16", **common, "style_weight": 10.0, "iterations": 3, **changes})


def small(place: Path, **changes: Any) -> Settings:
    recipe = {"encoder": "small", "iterations": 3, "reconstruct": 3, "ema_decay": 0.8, "schedule": "inverse-time"}
    weights = {"style_weight": 2.0, "sliced_weight": 1.0, "identity_weight": 1.0}
    return settings(place, **{**recipe, **weights, **changes})


def weights(network: StyleNetwork) -> Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def records(run: Path) -> list[dict[str, Any]]:
    """Return the log without the rates, which depend on the clock."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "per_second"} for line in lines]


class Watch:
    """Record the losses by phase and iteration, and raise an error at one of them."""

    def __init__(self, phase: str = "", iteration: int = 0, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.stop, self.error = (phase, iteration), error
        self.losses: dict[tuple[str, int], dict[str, float]] = {}

    def __call__(self, progress: Progress) -> None:
        if "loss" in progress.values:  # otherwise images are being read
            losses = {name: value for name, value in progress.values.items() if name != "iterations/s"}
            self.losses[progress.label, progress.done] = losses
            if (progress.label, progress.done) == self.stop:
                raise self.error
