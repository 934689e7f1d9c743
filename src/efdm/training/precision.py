"""The dtype that a network computes in. Its weights are always float32."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]
PRECISIONS: Mapping[str, torch.dtype] = MappingProxyType({"fp32": torch.float32, "bf16": torch.bfloat16})


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the autocast context of a precision."""
    # without the cache of casts, because cached weights would outlive a captured graph
    return torch.autocast(device.type, PRECISIONS[precision], enabled=precision != "fp32", cache_enabled=False)
