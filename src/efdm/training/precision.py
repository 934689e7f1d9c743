"""In which type a network computes; its weights are always float32."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

PRECISIONS: Mapping[str, torch.dtype] = MappingProxyType({"fp32": torch.float32, "bf16": torch.bfloat16})


def autocast(device: torch.device, precision: str) -> torch.autocast:
    # the cache of cast weights would outlive a captured graph
    return torch.autocast(device.type, PRECISIONS[precision], enabled=precision != "fp32", cache_enabled=False)
