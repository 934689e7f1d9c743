"""The default device, and the precision and speed that suit a device."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from efdm.errors import SettingError

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "cuda": {"precision": "bf16", "speed": "graph"},
    "cpu": {"precision": "fp32", "speed": "plain"},
})  # fmt: skip


def default_device() -> str:
    """Return "cuda" if there is a GPU, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_defaults(device: str) -> Mapping[str, Any]:
    """Return the precision and speed for a device such as "cuda:1". Unknown device types get those of a CPU."""
    return DEFAULTS.get(device.partition(":")[0], DEFAULTS["cpu"])


def check_device(device: str | torch.device) -> torch.device:
    """Return a device. Raise SettingError if it cannot be used."""
    try:
        torch.zeros(1, device=device).item()  # tensors on "meta" have no values
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise SettingError(f"device={str(device)!r} is not available here; use device='cpu'", "device") from error
    return torch.device(device)
