"""The dtype that a network computes in. Its weights are float32, or float64 to compare runs with little rounding error."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch

Precision = Literal["fp32", "bf16", "fp64"]
PRECISIONS: Mapping[str, torch.dtype] = MappingProxyType({
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64,
})  # fmt: skip


def weights_dtype(precision: str) -> torch.dtype:
    """Return the dtype of weights and inputs."""
    return torch.float64 if precision == "fp64" else torch.float32


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the autocast context of a precision."""
    # without the cache of casts, because cached weights would outlive a captured graph
    return torch.autocast(device.type, PRECISIONS[precision], enabled=precision == "bf16", cache_enabled=False)
