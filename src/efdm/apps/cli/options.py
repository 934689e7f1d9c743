"""Options that all commands share."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from efdm.training.device import check_device, default_device

Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:1. Defaults to the GPU if one is available.")]


def resolve_device(name: str) -> torch.device:
    """Return the named or the default device. Raises for a device that cannot compute."""
    chosen = name or default_device()
    check_device(chosen)
    return torch.device(chosen)
