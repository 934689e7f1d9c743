"""Quantiles on the CPU, after either sort. Imports numba, so it is loaded on first use."""

from __future__ import annotations

from functools import partial

from numba import float32

from efdm.kernels.cpu_radix import _jit


@partial(_jit, error_model="numpy")
def quantile_values(content, values, out, first_row, last_row):
    """Write the values at the quantiles of sorted content, all in float32."""
    n = content.shape[1]
    for r in range(first_row, last_row):
        x, y, z, start = content[r], values[r], out[r], 0
        z[:] = y
        while start < n:
            end = start + 1
            while end < n and y[end] == y[start]:
                end += 1
            if start > 0:  # ranks of equal values interpolate from the next smaller value
                low, step, width = y[start - 1], y[start] - y[start - 1], float32((end - start) * n)
                for i in range(start, end - 1):
                    z[i] = low + float32((i + 1 - start) * n) / width * step
            start = end
        last = z[n - 1]
        for i in range(n - 2, -1, -1):  # equal content takes the value of its last rank
            last = last if x[i] == x[i + 1] else z[i]
            z[i] = last
