"""Counting of levels on the CPU, with the results of `efdm.style.levels`. Imports numba, so it is loaded on first use."""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import float32, int32, uint32

from efdm.kernels.cpu_radix import _jit
from efdm.style.levels import BOX, DITHER, HALO

NEVER = 2**63 - 1
ONE, HALF, UNIT, AREA, SHARE = float32(1), float32(0.5), float32(2**-32), float32(1 / BOX**4), float32(DITHER)


@partial(_jit, error_model="numpy")  # divisions without a check for zero are vectorized
def smooth_bins(levels, rows, columns, scale, out, first, end):
    """Write the bins of values below 256, in the order "smooth", for rows ``first`` to ``end`` of all channels.

    ``levels`` and ``out`` are ``(c, h, w)``, ``rows`` and ``columns`` the terms of the dither, and ``scale`` is the number
    of bins in a level. The sums over a window move down by one row at a time and are completed along the row.
    """
    height, width = levels.shape[1:]
    total, ahead, behind = np.empty(width, np.int32), np.empty(width, np.int32), np.empty(width, np.int32)
    wide = np.empty(width + 2 * HALO, np.int32)
    for number in range(first, end):
        channel, row = levels[number // height], number % height
        last = height - 1
        if number == first or row == 0:
            total[:], ahead[:], behind[:] = 0, 0, 0
            for step in range(-HALO, BOX + 1):
                line = channel[min(max(row + step, 0), last)]
                weight, in_ahead, in_behind = int32(max(0, BOX - abs(step))), int32(step > 0), int32(step <= 0)
                for j in range(width):
                    total[j] += weight * line[j]
                    ahead[j] += in_ahead * line[j]
                    behind[j] += in_behind * line[j]
        wide[:HALO], wide[HALO + width :] = total[0], total[width - 1]
        wide[HALO : HALO + width] = total
        length = wide.size
        for _ in range(2):
            for power in range(4):  # four doublings sum a box of 16
                step = 1 << power
                length -= step
                for j in range(length):
                    wide[j] += wide[j + step]
        line, bins, start = channel[row], out[number // height, row], rows[row]
        for j in range(width):
            level = float32(line[j])
            off = float32(wide[j]) * AREA - level
            off = (off / (abs(off) + ONE) + ONE) * HALF
            position = off + SHARE * (float32(uint32(start + columns[j])) * UNIT - off)
            bins[j] = int32((level + position) * scale)
        new, next_, old = channel[min(row + BOX + 1, last)], channel[min(row + 1, last)], channel[max(row - HALO, 0)]
        for j in range(width):
            total[j] += ahead[j] - behind[j]
            ahead[j] += new[j] - next_[j]
            behind[j] += next_[j] - old[j]


@_jit
def count(bins, counts):
    """Add the bins of a chunk to their counts."""
    for i in range(bins.size):
        counts[uint32(bins[i])] += 1


@_jit
def curve(counts, ends, packed):
    """Write the parts of a `Curve`. The counts are replaced by the first rank of every bin."""
    rank, level, end = 0, 0, ends[0]
    for i in range(counts.size):
        while end <= rank:
            level += 1
            end = ends[level] if level < ends.size else NEVER
        size, counts[i] = counts[i], rank
        rank += size
        packed[i] = 2 * level + (end < rank)


@_jit
def to_levels(bins, ends, first, packed):
    """Replace the bins of a chunk by matched levels, and advance the first rank of bins that are divided between levels."""
    for i in range(bins.size):
        at = uint32(bins[i])
        code = packed[at]
        level = code >> 1
        if code & 1:
            rank = first[at]
            first[at] = rank + 1
            while ends[level] <= rank:
                level += 1
        bins[i] = level
