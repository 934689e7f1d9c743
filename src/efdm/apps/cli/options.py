"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:1. Defaults to the GPU if one is available.")]
Weights = Annotated[Path | None, typer.Option(help="A network.safetensors written by `efdm train style`.")]
Vgg = Annotated[Path | None, typer.Option(help="Weights of the VGG, for models that need one. See `efdm weights`.")]


def check_device(name: str) -> torch.device:
    """Return the device with this name, or the default one. Raises for a device that cannot compute."""
    import torch

    from efdm.training import device

    chosen = name or device.default_device()
    device.check_device(chosen)
    return torch.device(chosen)
