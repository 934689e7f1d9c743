"""Short rows on the CPU: a sorting network, many rows at once. Imports numba and is called like cpu_radix.py.

A network compares the same places whatever the values are. So the rows of a block lie side by side, one in each lane, and
every comparison is one vector instruction for several rows. The counting tables of the radix sort, which cost more than a
short row does, are not needed. A word is a key and its position: all differ, and the order is stable.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from efdm.kernels.cpu_radix import POSITION, SHIFT, _jit, blended, content_key, mix, take  # noqa: F401  the same for all rows

LANES = 96  # more would save overhead, but a block of words should stay in the second-level cache
LINE = 64 // 8  # words of a cache line


@_jit
def exchange(low, high):
    # two arrays and a function of its own: inside the loops of `sort_lanes` the compiler finds no vector instructions
    for i in range(low.size):
        a, b = low[i], high[i]
        low[i] = min(a, b)
        high[i] = max(a, b)


@_jit
def sort_lanes(words, lanes):
    """Sort ``words[i * lanes + lane]`` over i, in every lane: Batcher's merge exchange (Knuth, 5.2.2, algorithm M)."""
    n = words.size // lanes
    half = 1
    while 2 * half < n:
        half *= 2
    run = half
    while run > 0:
        begin, distance, next_distance = 0, run, half
        while distance > 0:
            for first in range(begin, n - distance, 2 * run):
                last = min(first + run, n - distance)
                low, high = first * lanes, (first + distance) * lanes
                exchange(words[low : last * lanes], words[high : (last + distance) * lanes])
            begin, distance, next_distance = run, next_distance - run, next_distance // 2
        run //= 2


@_jit
def workspace(x, lanes):
    """Words for a block, which begin with a cache line: vectors across two lines take twice as long; and words for a row."""
    words = np.empty(x.shape[1] * lanes + LINE, np.uint64)
    skipped = (-(words.ctypes.data // 8)) % LINE
    return words[skipped : skipped + x.shape[1] * lanes], np.empty(x.shape[1], np.uint64)


@_jit
def sort_block(x, infinity, words, row):
    """Sort the rows of ``x``; the position of rank i of a row is then in the low half of ``words[i * lanes + lane]``."""
    lanes = x.shape[0]
    for lane in range(lanes):
        for i in range(row.size):  # apart from the next loop: this one is vectorised, scattering is not
            row[i] = (content_key(x[lane, i], infinity) << SHIFT) | uint64(i)
        for i in range(row.size):
            words[i * lanes + lane] = row[i]
    sort_lanes(words, lanes)


@_jit
def blocks(first, last):
    """Where blocks begin, and their rows: whole cache lines, about LANES. Blocks may overlap; some rows are done twice."""
    rows = last - first
    count = (rows + LANES - 1) // LANES
    lanes = min(rows, (rows + count * LINE - 1) // (count * LINE) * LINE)
    return np.minimum(np.arange(first, last, lanes), last - lanes), lanes


@_jit
def in_order(y, words, out):
    for lane in range(y.shape[0]):
        for i in range(y.shape[1]):
            out[lane, i] = y[lane, words[i * y.shape[0] + lane] & POSITION]


@_jit
def by_rank(words, values, out):
    for lane in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[lane, words[i * out.shape[0] + lane] & POSITION] = values[lane, i]


@_jit
def match_sorted(x, values, out, infinity, first, last):
    begins, lanes = blocks(first, last)
    words, row = workspace(x, lanes)
    for a in begins:
        b = a + lanes
        sort_block(x[a:b], infinity, words, row)
        by_rank(words, values[a:b], out[a:b])


@_jit
def sort_match(x, y, out, infinity, first, last):
    begins, lanes = blocks(first, last)
    words, row = workspace(x, lanes)
    values = np.empty_like(y[:lanes])
    for a in begins:
        b = a + lanes
        sort_block(y[a:b], infinity, words, row)
        in_order(y[a:b], words, values)
        sort_block(x[a:b], infinity, words, row)
        by_rank(words, values, out[a:b])


@_jit
def sort_rows(y, out, infinity, first, last):
    begins, lanes = blocks(first, last)
    words, row = workspace(y, lanes)
    for a in begins:
        b = a + lanes
        sort_block(y[a:b], infinity, words, row)
        in_order(y[a:b], words, out[a:b])


@_jit
def sort_rank(x, values, ranks, infinity, first, last):
    begins, lanes = blocks(first, last)
    words, row = workspace(x, lanes)
    for a in begins:
        sort_block(x[a : a + lanes], infinity, words, row)
        for lane in range(lanes):  # `in_order` and `by_rank` in one: going through the words twice is a tenth of all
            for i in range(x.shape[1]):
                place = words[i * lanes + lane] & POSITION
                values[a + lane, i] = x[a + lane, place]
                ranks[a + lane, place] = i


# Channels last: numbers of one place lie side by side, as in a block, and those of one row far apart. Arrays here are
# (samples, n, channels), and row r is channel r % channels of sample r // channels. Read and written as they lie: copies to
# rows and back would take a quarter of the time.
@_jit
def part_in(sample, channels, first, last):
    """Of the rows from first to last, those of a sample: the lane of the first one, its channel, and how many."""
    begin = max(first - sample * channels, 0)  # written so that the compiler knows it is not negative
    end = min(last - sample * channels, channels)
    return sample * channels + begin - first, begin, end - begin


@_jit
def fill_block(x, first, last, infinity, words):
    lanes, channels = last - first, x.shape[2]
    for sample in range(first // channels, (last - 1) // channels + 1):
        lane, begin, count = part_in(sample, channels, first, last)
        for i in range(x.shape[1]):
            place, block = x[sample, i], words[i * lanes + lane : i * lanes + lane + count]
            for k in range(count):
                block[k] = (content_key(place[begin + k], infinity) << SHIFT) | uint64(i)


@_jit
def read_block(x, first, last, words, values, order):
    lanes, channels = last - first, x.shape[2]
    for sample in range(first // channels, (last - 1) // channels + 1):
        lane, begin, count = part_in(sample, channels, first, last)
        for i in range(x.shape[1]):
            block = words[i * lanes + lane : i * lanes + lane + count]
            for k in range(count):
                place = block[k] & POSITION
                values[sample, i, begin + k] = x[sample, place, begin + k]
                order[sample, i, begin + k] = place


@_jit
def sort_order_last(x, values, order, infinity, first, last):
    """Sorted values, and the position that each of them comes from."""
    begins, lanes = blocks(first, last)
    words, _ = workspace(x, lanes)
    for a in begins:
        fill_block(x, a, a + lanes, infinity, words)
        sort_lanes(words, lanes)
        read_block(x, a, a + lanes, words, values, order)


@_jit
def mix_last(values, order, partners, weights, out, first, last):
    """`mix` of whole samples. Ranks of sample and partner meet in order, and only what comes of it is sent to its place."""
    for sample in range(first, last):
        style, weight = values[partners[sample]], weights[sample]
        for i in range(values.shape[1]):
            for c in range(values.shape[2]):
                out[sample, order[sample, i, c], c] = blended(values[sample, i, c], style[i, c], weight)
