"""Sorting network for short rows on the CPU, with the same functions as cpu_radix.py. Imports numba.

A sorting network compares the same positions for all inputs. The rows of a block are therefore stored interleaved,
one row per lane, and each vector instruction compares several rows. This avoids the counting tables of the radix sort, which
cost more than a short row itself. A word holds a key and its position, so all words differ and the sort is stable.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types, uint64
from numba.extending import intrinsic

from efdm.kernels.cpu_radix import POSITION, SHIFT, _jit, content_key, inverse, lerp, mix, mix_backward, take  # noqa: F401

LANES = 16  # rows of a block, whose words should fit the first-level cache
LINE = 64 // 8  # words per cache line


@intrinsic
def exchange(typing_context, words, low, high):
    """Sort the pairs ``words[low + lane]``, ``words[high + lane]`` in all lanes."""

    def generate(context, builder, signature, arguments):
        array, *starts = arguments
        data, block = context.make_array(words)(context, builder, array).data, ir.VectorType(ir.IntType(64), LANES)
        places = [builder.bitcast(builder.gep(data, [start]), block.as_pointer()) for start in starts]
        a, b = (builder.load(place, align=8) for place in places)
        ordered = builder.icmp_unsigned("<", a, b)
        builder.store(builder.select(ordered, a, b), places[0], align=8)
        builder.store(builder.select(ordered, b, a), places[1], align=8)
        return context.get_dummy_value()

    return types.void(words, types.uint64, types.uint64), generate


@_jit
def sort_lanes(words):
    """Sort ``words[i * LANES + lane]`` over ``i`` in every lane by Batcher's merge exchange (Knuth, 5.2.2, algorithm M)."""
    n = words.size // LANES
    half = 1
    while 2 * half < n:
        half *= 2
    run = half
    while run > 0:
        begin, distance, next_distance = 0, run, half
        while distance > 0:
            for first in range(begin, n - distance, 2 * run):
                for i in range(first, min(first + run, n - distance)):
                    exchange(words, uint64(i * LANES), uint64((i + distance) * LANES))
            begin, distance, next_distance = run, next_distance - run, next_distance // 2
        run //= 2


@_jit
def workspace(x):
    """Allocate the words of a block and of a row. Blocks are aligned to cache lines, because unaligned ones take longer."""
    words = np.empty(x.shape[1] * LANES + LINE, np.uint64)
    skipped = (-(words.ctypes.data // 8)) % LINE
    return words[skipped : skipped + x.shape[1] * LANES], np.empty(x.shape[1], np.uint64)


@_jit
def sort_block(x, infinity, words, row):
    """Sort up to LANES rows ``x``. The low half of ``words[i * LANES + lane]`` is then the position of rank ``i``."""
    for lane in range(x.shape[0]):
        for i in range(row.size):  # a separate loop, which is vectorized; the scatter below is not
            row[i] = (content_key(x[lane, i], infinity) << SHIFT) | uint64(i)
        for i in range(row.size):
            words[i * LANES + lane] = row[i]
    sort_lanes(words)


@_jit
def blocks(first, last):
    """Return the first row of each block and the number of rows per block. Blocks may overlap."""
    lanes = min(last - first, LANES)
    return np.minimum(np.arange(first, last, lanes), last - lanes), lanes


@_jit
def gather_sorted(y, words, out):
    for lane in range(y.shape[0]):
        for i in range(y.shape[1]):
            out[lane, i] = y[lane, words[i * LANES + lane] & POSITION]


@_jit
def scatter_by_rank(words, values, out):
    for lane in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[lane, words[i * LANES + lane] & POSITION] = values[lane, i]


@_jit
def match_sorted(x, values, out, infinity, first, last):
    starts, lanes = blocks(first, last)
    words, row = workspace(x)
    for a in starts:
        b = a + lanes
        sort_block(x[a:b], infinity, words, row)
        scatter_by_rank(words, values[a:b], out[a:b])


@_jit
def sort_match(x, y, out, infinity, first, last):
    starts, lanes = blocks(first, last)
    words, row = workspace(x)
    values = np.empty_like(y[:lanes])
    for a in starts:
        b = a + lanes
        sort_block(y[a:b], infinity, words, row)
        gather_sorted(y[a:b], words, values)
        sort_block(x[a:b], infinity, words, row)
        scatter_by_rank(words, values, out[a:b])


@_jit
def sort_rows(y, out, infinity, first, last):
    starts, lanes = blocks(first, last)
    words, row = workspace(y)
    for a in starts:
        b = a + lanes
        sort_block(y[a:b], infinity, words, row)
        gather_sorted(y[a:b], words, out[a:b])


@_jit
def sort_rank(x, values, ranks, infinity, first, last):
    starts, lanes = blocks(first, last)
    words, row = workspace(x)
    for a in starts:
        sort_block(x[a : a + lanes], infinity, words, row)
        # `gather_sorted` and `scatter_by_rank` fused: a second pass over the words takes a tenth of the time
        for lane in range(lanes):
            for i in range(x.shape[1]):
                position = words[i * LANES + lane] & POSITION
                values[a + lane, i] = x[a + lane, position]
                ranks[a + lane, position] = i


# The functions below work on channels-last arrays (samples, n, channels) without copying, because copies to rows and back
# would take a quarter of the time. Row r is channel r % channels of sample r // channels.
@_jit
def rows_of_sample(sample, channels, first, last):
    """Return the lane, the channel and the number of the rows in [first, last) that belong to a sample."""
    begin = max(first - sample * channels, 0)  # written so that the compiler infers a non-negative value
    end = min(last - sample * channels, channels)
    return sample * channels + begin - first, begin, end - begin


@_jit
def fill_block(x, first, last, infinity, words):
    channels = x.shape[2]
    for sample in range(first // channels, (last - 1) // channels + 1):
        lane, begin, count = rows_of_sample(sample, channels, first, last)
        for i in range(x.shape[1]):
            values, block = x[sample, i], words[i * LANES + lane : i * LANES + lane + count]
            for k in range(count):
                block[k] = (content_key(values[begin + k], infinity) << SHIFT) | uint64(i)


@_jit
def read_block(x, first, last, words, values, order):
    channels = x.shape[2]
    for sample in range(first // channels, (last - 1) // channels + 1):
        lane, begin, count = rows_of_sample(sample, channels, first, last)
        for i in range(x.shape[1]):
            block = words[i * LANES + lane : i * LANES + lane + count]
            for k in range(count):
                position = block[k] & POSITION
                values[sample, i, begin + k] = x[sample, position, begin + k]
                order[sample, i, begin + k] = position


@_jit
def sort_channels_last(x, values, order, infinity, first, last):
    """Write the sorted values and the position that each value had."""
    starts, lanes = blocks(first, last)
    words, _ = workspace(x)
    for a in starts:
        fill_block(x, a, a + lanes, infinity, words)
        sort_lanes(words)
        read_block(x, a, a + lanes, words, values, order)


@_jit
def mix_channels_last(values, order, partners, weights, out, first, last):
    """Blend values of equal rank for whole samples and write the results to the positions of the content."""
    for sample in range(first, last):
        style, weight = values[partners[sample]], weights[sample]
        for i in range(values.shape[1]):
            for c in range(values.shape[2]):
                out[sample, order[sample, i, c], c] = lerp(values[sample, i, c], style[i, c], weight)


@_jit
def backward_channels_last(grad, order, partners, weights, out, first, last):
    """`mix_backward` for whole samples of a channels-last gradient, with the order in rows (samples, channels, n)."""
    received = np.empty(order.shape[1:], np.float32)
    for sample in range(first, last):
        received[:] = 0
        for a in range(partners.size):
            if partners[a] == sample and weights[a] != 0:
                for c in range(received.shape[0]):
                    for i in range(received.shape[1]):
                        received[c, i] += weights[a] * grad[a, order[a, c, i], c]
        for c in range(received.shape[0]):
            for i in range(received.shape[1]):
                position = order[sample, c, i]
                out[sample, position, c] = grad[sample, position, c] + received[c, i]
