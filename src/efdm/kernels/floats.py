"""Floating-point types: bit patterns for sorting, and the type to compute in."""

from __future__ import annotations

import torch
from torch import Tensor

# The bit pattern of infinity. Larger magnitudes are NaN; the value also distinguishes float16 from bfloat16.
INFINITY_BITS = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
DTYPES = tuple(INFINITY_BITS)


def upcast(values: Tensor) -> Tensor:
    """Convert half precision to float32, in which sums neither overflow nor lose small terms."""
    return values if values.dtype == torch.float64 else values.float()
