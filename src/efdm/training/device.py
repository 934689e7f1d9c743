"""Where a training runs when nothing is said, what suits the place, and whether there is such a place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

SUITED: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "cuda": {"precision": "bf16", "speed": "graph"},
    "cpu": {"precision": "fp32", "speed": "plain"},
})  # fmt: skip


def default_device() -> str:
    """The GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def suited(device: str) -> Mapping[str, str]:
    """Precision and speed on a device as torch writes it. A CPU's run anywhere: also where we know nothing of the device."""
    return SUITED.get(device.partition(":")[0], SUITED["cpu"])


def check_device(device: str) -> None:
    """Raise where nothing can be computed on the device, before anything is read."""
    try:
        torch.zeros(1, device=device).item()  # "meta" can hold tensors, but no values
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        instead = ", ".join(f'{name}="{value}"' for name, value in {"device": "cpu", **SUITED["cpu"]}.items())
        raise ValueError(f"device={device!r} cannot be used here; on a CPU give {instead}") from error
