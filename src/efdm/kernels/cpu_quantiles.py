"""Quantiles on the CPU, after either sort. Imports numba, so it is loaded on first use."""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import float32

from efdm.kernels.cpu_radix import FLOAT_ONE, HALF, _jit

EXPONENT = np.uint32(0x7F800000)


@_jit
def rounded(weight, tiny, scale):
    """Round a float32 to a type with the smallest normal number ``tiny`` and a resolution ``scale`` times as coarse."""
    power = np.uint32(np.float32(weight).view(np.uint32) & EXPONENT).view(np.float32)
    shift = max(power, tiny) * scale  # float32 numbers of this size have the spacing of the type at ``weight``
    return (weight + shift) - shift if scale > FLOAT_ONE else weight


@partial(_jit, fastmath={"contract"}, error_model="numpy")  # fused multiply-add, as in torch.lerp
def quantile_values(content, values, out, tiny, scale, first_row, last_row):
    """Write the values at the quantiles of sorted content. Weights are rounded to the type of ``tiny`` and ``scale``."""
    n, tiny, scale = content.shape[1], float32(tiny), float32(scale)
    for r in range(first_row, last_row):
        x, y, z, start = content[r], values[r], out[r], 0
        z[:] = y
        while start < n:
            end = start + 1
            while end < n and y[end] == y[start]:
                end += 1
            if start > 0:  # equal values are interpolated from the next smaller one
                low, width = y[start - 1], float32((end - start) * n)
                for i in range(start, end - 1):
                    weight = rounded(float32((i + 1 - start) * n) / width, tiny, scale)
                    share = weight if weight < HALF else weight - FLOAT_ONE
                    z[i] = (low if weight < HALF else y[i]) + share * (y[i] - low)
            start = end
        last = z[n - 1]
        for i in range(n - 2, -1, -1):  # equal content takes the value of its last rank
            last = last if x[i] == x[i + 1] else z[i]
            z[i] = last
