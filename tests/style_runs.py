"""Settings of small style-transfer runs for tests."""

from pathlib import Path
from typing import Any

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
