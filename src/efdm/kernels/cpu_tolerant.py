"""Tolerant matching on the CPU, after either sort. Imports numba, so it is loaded on first use."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from llvmlite import ir
from numba import float32, types, uint64
from numba.extending import intrinsic

from efdm.kernels.cpu_radix import ONE, POSITION, SHIFT, _jit, digit_bits, sort_lower_digits, workspace

LANES = 16  # values that are compared with a bound at once
RANKS = 8  # ranks that are searched together; one pointer that moves by single steps mispredicts and takes 6 times as long


@intrinsic
def count_below(typing_context, values, start, bound):
    """Return how many of the float32 ``values[start : start + LANES]`` are below ``bound``."""

    def generate(context, builder, signature, arguments):
        array, index, limit = arguments
        vector, zero = ir.VectorType(ir.FloatType(), LANES), ir.Constant(ir.IntType(32), 0)
        at = builder.gep(context.make_array(values)(context, builder, array).data, [index])
        found = builder.load(builder.bitcast(at, vector.as_pointer()), align=4)
        undefined, zeros = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(zero.type, LANES), [0] * LANES)
        limits = builder.shuffle_vector(builder.insert_element(undefined, limit, zero), undefined, zeros)
        bits = builder.bitcast(builder.fcmp_ordered("<", found, limits), ir.IntType(LANES))
        return builder.ctpop(builder.zext(bits, ir.IntType(64)))

    return types.int64(values, types.uint64, types.float32), generate


@partial(_jit, fastmath={"reassoc"})  # vectorized sums
def count_and_deviation(content):
    """Return the number of values before NaN and their standard deviation."""
    known = content.size
    while known > 0 and math.isnan(content[known - 1]):
        known -= 1
    total, squares = 0.0, 0.0
    for i in range(known):
        total += content[i]
    mean = total / max(known, 1)
    for i in range(known):
        squares += (content[i] - mean) ** 2
    return known, math.sqrt(squares / (known - 1)) if known > 1 else math.nan


@_jit
def search(content, known, radius, first):
    """Write the number of values below ``content[i] - radius`` for blocks of ranks that cover the first ``known``.

    The content is followed by `LANES` values that are not smaller. Unsigned indices need no check for negative ones.
    """
    low, start = uint64(0), uint64(0)
    while start < known:
        for j in range(RANKS):
            first[start + uint64(j)] = low + uint64(count_below(content, low, content[start + uint64(j)] - radius))
        low += uint64(LANES)
        stop = min(start + uint64(RANKS), uint64(known))
        while content[low - ONE] < content[stop - ONE] - radius:
            for j in range(RANKS):
                first[start + uint64(j)] += uint64(count_below(content, low, content[start + uint64(j)] - radius))
            low += uint64(LANES)
        low = uint64(first[stop - ONE])
        start += uint64(RANKS)


@partial(_jit, error_model="numpy")  # without a check for division by zero, which prevents vectorization
def average(content, values, tolerance, order, first, last, sums, out):
    """Write the mean over the values of similar content, for rank ``i`` to ``out[order[i]]``."""
    n = values.size
    known, deviation = count_and_deviation(content[:n])
    radius = float32(tolerance * deviation)
    finite = math.isfinite(radius) and math.isfinite(values[0]) and math.isfinite(values[n - 1])
    known = known if finite else 0
    search(content, known, radius, first)
    last[:] = 0
    total, end = 0.0, uint64(0)
    for i in range(known):
        sums[i] = total
        total += values[i]
        last[first[i]] = i + 1  # the last of the ranks with this first one; counting them would wait for every store
    sums[known] = total
    for i in range(known):
        end = max(end, uint64(last[i]))  # similarity is symmetric: the number of ranks whose first one is at most i
        size = end - uint64(first[i])
        mean = float32(sums[end] - sums[first[i]]) / float32(size)
        out[order[i]] = values[i] if size == ONE else mean
    for i in range(known, n):
        out[order[i]] = values[i]


@_jit
def buffers(n):
    """Return memory for padded content and its order, and for the results of `search`."""
    content, sums = np.full(n + LANES, np.inf, np.float32), np.empty(n + 1)
    return content, np.empty(n, np.uint32), np.empty(n + RANKS, np.uint32), np.empty(n, np.uint32), sums


@_jit
def tolerant_values(content, values, out, tolerance, first_row, last_row):
    """Write the averages of sorted rows by rank."""
    n = content.shape[1]
    padded, order, first, last, sums = buffers(n)
    order[:] = np.arange(n)
    for r in range(first_row, last_row):
        padded[:n] = content[r]
        average(padded, values[r], tolerance, order, first, last, sums, out[r])


@_jit
def tolerant_match(x, values, out, words, tolerance, infinity, first_row, last_row):
    """Write the averages by position. ``words`` holds the bits of the rows ``x``, before their conversion to float32."""
    a, b, counts = workspace(words)
    content, order, first, last, sums = buffers(words.shape[1])
    passes = counts.shape[0]
    shift = SHIFT + uint64(passes - 1) * uint64(digit_bits(words[0, 0]))
    for r in range(first_row, last_row):
        items = sort_lower_digits(words[r], infinity, a, b, counts)
        offsets = counts[passes - 1]
        for i in range(items.size):  # the last pass, in which the output index of an element is its rank
            item = items[i]
            digit = item >> shift
            rank = offsets[digit]
            offsets[digit] = rank + ONE
            position = item & POSITION
            content[rank] = x[r, position]
            order[rank] = position
        average(content, values[r], tolerance, order, first, last, sums, out[r])
