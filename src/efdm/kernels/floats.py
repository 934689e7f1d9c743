"""Floating-point types: those that our own kernels sort by their bits, and those to compute in."""

from __future__ import annotations

import torch
from torch import Tensor

# the bit pattern of infinity: what lies above it is NaN, and it tells float16 from bfloat16
INFINITY_BITS = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
DTYPES = tuple(INFINITY_BITS)


def upcast(values: Tensor) -> Tensor:
    """Half types as float32, in which sums neither overflow nor round away; others as they are."""
    return values if values.dtype == torch.float64 else values.float()
