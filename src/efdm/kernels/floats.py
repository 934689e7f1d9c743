"""The floating-point types that our own kernels sort by their bits."""

from __future__ import annotations

import torch

# the bit pattern of infinity: what lies above it is NaN, and it tells float16 from bfloat16
INFINITY = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
DTYPES = tuple(INFINITY)
