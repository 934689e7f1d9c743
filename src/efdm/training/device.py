"""Devices and precisions: which can be used, and which suit each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from efdm.errors import SettingError

Precision = Literal["fp32", "bf16", "fp64"]
PRECISIONS: Mapping[str, torch.dtype] = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64,
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "cuda": {"precision": "bf16", "speed": "graph"},
    "cpu": {"precision": "fp32", "speed": "plain"},
}  # fmt: skip


def default_device() -> str:
    """Return "cuda" if a GPU is available, otherwise "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_defaults(device: str) -> Mapping[str, Any]:
    """Return the precision and speed for a device such as "cuda:1". Unknown device types get those of a CPU."""
    return DEFAULTS.get(device.partition(":")[0], DEFAULTS["cpu"])


def fast_precision(device: torch.device) -> str:
    """Return "bf16" for CPUs with instructions for it, otherwise "fp32"."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # missing in older versions of torch
    has_bf16 = any(getattr(torch.cpu, check, lambda: False)() for check in checks)
    return "bf16" if device.type == "cpu" and has_bf16 else "fp32"


def check_device(device: str | torch.device) -> torch.device:
    """Return a device. Raise SettingError if it cannot be used."""
    try:
        torch.zeros(1, device=device).item()  # tensors on "meta" have no values
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise SettingError(f"device={str(device)!r} is not available here; use device='cpu'", "device") from error
    return torch.device(device)


def weights_dtype(precision: str) -> torch.dtype:
    """Return the dtype of weights and inputs: float64 only to compare runs with little rounding error."""
    return torch.float64 if precision == "fp64" else torch.float32


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context in which a network computes in a precision."""
    # without the cache of casts, because cached weights would outlive a captured graph
    return torch.autocast(device.type, PRECISIONS[precision], enabled=precision == "bf16", cache_enabled=False)
