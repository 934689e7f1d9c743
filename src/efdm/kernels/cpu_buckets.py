"""Bucket sort of rows that exceed the cache on the CPU, with threads that share a row. Imports numba.

The 16 highest bits of a key are its bin. Bins are counted, and neighboring bins are joined to buckets. Keys are scattered
to their buckets in order of position, and each bucket is sorted by itself, in the cache. For content, the value of every
rank replaces the key of that rank, and a last step gathers the values of each bucket in the order in which the keys were
scattered. All steps access memory in a limited number of streams, whereas the passes of the radix sort write at random.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numba import uint32, uint64

from efdm.kernels.cpu_radix import ONE, POSITION, SHIFT, _jit, content_key, exclusive_sum, radix_pass, style_key, style_word
from efdm.kernels.cpu_threads import SHARES_PER_THREAD, parallel_rows

BINS = 1 << 16
BLOCK = 1 << 10  # values whose keys are computed at once
BUCKET_SIZE = 1 << 15  # values of a bucket; their words and a copy of them should fit the second-level cache
MAX_DIGIT_BITS = uint64(9)  # of a key in a bucket


@_jit
def write_keys(words, infinity, style, keys):
    """Write keys to a buffer that stays in the cache: a loop of its own is vectorized."""
    if style:
        for i in range(words.size):
            keys[i] = style_key(words[i], infinity)
    else:
        for i in range(words.size):
            keys[i] = content_key(words[i], infinity)


@_jit
def part_of_row(n, parts, task):
    """Return the row of a task and its part of that row."""
    part = task % parts
    return task // parts, n * part // parts, n * (part + 1) // parts


@_jit
def count_bins(x, counts, shift, infinity, style, first, last):
    """Count the bins in each part of each row. ``counts`` is ``(rows, parts, BINS)``."""
    keys = np.empty(BLOCK, x.dtype)
    for task in range(first, last):
        row, start, end = part_of_row(x.shape[1], counts.shape[1], task)
        histogram = counts[row, task % counts.shape[1]]
        for at in range(start, end, BLOCK):
            words = x[row, at : min(at + BLOCK, end)]
            write_keys(words, infinity, style, keys)
            for i in range(words.size):
                histogram[uint64(keys[i]) >> shift] += ONE


@_jit
def join_bins(counts, buckets, starts, first, last):
    """Write the bucket of every bin, and where the values of every part and bucket begin."""
    for row in range(first, last):
        rank = 0
        starts[row] = 0
        for i in range(BINS):
            bucket = rank // BUCKET_SIZE
            buckets[row, i] = bucket
            for part in range(counts.shape[1]):
                starts[row, part, bucket] += counts[row, part, i]
                rank += counts[row, part, i]
        total = uint32(0)
        for bucket in range(starts.shape[2]):
            for part in range(counts.shape[1]):
                size = starts[row, part, bucket]
                starts[row, part, bucket] = total
                total += size


@_jit
def next_offset(offsets, bucket):
    offset = offsets[bucket]
    offsets[bucket] = offset + ONE
    return offset


@_jit
def visit_buckets(x, buckets, starts, keys, out, shift, infinity, style, first, last):
    """Write keys to their buckets in order of position or, given ``out``, read the values that replaced them."""
    block = np.empty(BLOCK, x.dtype)
    for task in range(first, last):
        row, start, end = part_of_row(x.shape[1], starts.shape[1], task)
        offsets = starts[row, task % starts.shape[1]].copy()
        for at in range(start, end, BLOCK):
            words = x[row, at : min(at + BLOCK, end)]
            write_keys(words, infinity, style, block)
            for i in range(words.size):
                offset = next_offset(offsets, buckets[row, uint64(block[i]) >> shift])
                if out is None:
                    keys[row, offset] = block[i]
                else:
                    out[row, at + i] = keys[row, offset]


@_jit
def digit_layout(keys):
    """Return the smallest key, and the number and the width of the digits in which keys differ."""
    low, high = keys[0], keys[0]
    for i in range(keys.size):
        low, high = min(low, keys[i]), max(high, keys[i])
    bits, span = uint64(0), uint64(high - low)
    while span >> bits:
        bits += uint64(1)
    passes = (bits + MAX_DIGIT_BITS - uint64(1)) // MAX_DIGIT_BITS
    return uint64(low), passes, (bits + passes - uint64(1)) // max(passes, uint64(1))


@_jit
def sort_words(a, b, counts, passes, bits, low):
    """Sort words by ``passes`` digits of ``bits`` bits from bit ``low``, and return the buffer that holds the result."""
    mask = (uint64(1) << bits) - uint64(1)
    for p in range(passes):
        shift = low + uint64(p) * bits
        counts[:] = 0
        for i in range(a.size):
            counts[(uint64(a[i]) >> shift) & mask] += ONE
        exclusive_sum(counts[: mask + uint64(1)])
        radix_pass(a, b, counts, shift, mask)
        a, b = b, a
    return a


@_jit
def sort_buckets(keys, starts, size, first, last):
    """Replace the keys of every bucket by its sorted values. ``size`` is that of the largest bucket."""
    counts = np.empty(1 << MAX_DIGIT_BITS, np.uint32)
    front, back = np.empty(size, keys.dtype), np.empty(size, keys.dtype)
    for task in range(first, last):
        row, bucket = task // (starts.shape[2] - 1), task % (starts.shape[2] - 1)
        bucket_keys = keys[row, starts[row, 0, bucket] : starts[row, 0, bucket + 1]]
        if bucket_keys.size == 0:
            continue
        low, passes, bits = digit_layout(bucket_keys)
        a, b = front[: bucket_keys.size], back[: bucket_keys.size]
        for i in range(bucket_keys.size):
            a[i] = bucket_keys[i] - low
        a = sort_words(a, b, counts, passes, bits, uint64(0))
        for i in range(bucket_keys.size):
            bucket_keys[i] = style_word(uint64(a[i]) + low, a[i])


@_jit
def match_buckets(keys, starts, size, values, first, last):
    """Replace the keys of every bucket by the values of their ranks."""
    counts, front, back = np.empty(1 << MAX_DIGIT_BITS, np.uint32), np.empty(size, np.uint64), np.empty(size, np.uint64)
    for task in range(first, last):
        row, bucket = task // (starts.shape[2] - 1), task % (starts.shape[2] - 1)
        start, end = starts[row, 0, bucket], starts[row, 0, bucket + 1]
        bucket_keys = keys[row, start:end]
        if bucket_keys.size == 0:
            continue
        low, passes, bits = digit_layout(bucket_keys)
        a, b = front[: bucket_keys.size], back[: bucket_keys.size]
        for i in range(bucket_keys.size):
            a[i] = ((uint64(bucket_keys[i]) - low) << SHIFT) | uint64(i)
        a = sort_words(a, b, counts, passes, bits, SHIFT)
        for i in range(bucket_keys.size):
            bucket_keys[a[i] & POSITION] = values[row, start + i]


class Buckets:
    """Rows of unsigned words, whose keys are written to ``keys`` in buckets."""

    def __init__(self, words, keys, infinity, kind):
        self.words, self.keys, self.options = words, keys, (8 * words.itemsize - 16, infinity, kind == "style")
        rows, n = words.shape
        self.parts = -(-SHARES_PER_THREAD * torch.get_num_threads() // rows)
        counts = np.zeros((rows, self.parts, BINS), np.uint32)
        self.buckets = np.empty((rows, BINS), np.uint32)
        self.starts = np.empty((rows, self.parts, n // BUCKET_SIZE + 2), np.uint32)
        self._each_part(count_bins, counts)
        parallel_rows(partial(join_bins, counts, self.buckets, self.starts), rows, BINS * self.parts)
        self._each_part(visit_buckets, self.buckets, self.starts, keys, None)

    def _each_part(self, work, *arrays):
        rows, n = self.words.shape
        parallel_rows(partial(work, self.words, *arrays, *self.options), rows * self.parts, n // self.parts)

    def _each_bucket(self, work, *arrays):
        rows, _, buckets = self.starts.shape
        size = int(np.diff(self.starts[:, 0]).max())
        parallel_rows(partial(work, self.keys, self.starts, size, *arrays), rows * (buckets - 1), BUCKET_SIZE)

    def sort(self):
        """Replace the keys of style by the sorted values, and return them."""
        self._each_bucket(sort_buckets)
        return self.keys

    def match(self, values, out):
        """Write the values of the ranks of content."""
        self._each_bucket(match_buckets, values)
        self._each_part(visit_buckets, self.buckets, self.starts, self.keys, out)


def _groups(rows):
    """Return slices of as many rows as threads, which limits the memory."""
    size = torch.get_num_threads()
    return [slice(i, i + size) for i in range(0, rows, size)]


def sort_rows(y, infinity):
    out = np.empty_like(y)
    for rows in _groups(len(y)):
        Buckets(y[rows], out[rows], infinity, "style").sort()
    return out


def match_sorted(x, values, infinity):
    out = np.empty_like(x)
    for rows in _groups(len(x)):
        Buckets(x[rows], np.empty_like(x[rows]), infinity, "content").match(values[rows], out[rows])
    return out


def sort_match(x, y, infinity):
    out = np.empty_like(x)
    for rows in _groups(len(x)):
        values = Buckets(y[rows], np.empty_like(y[rows]), infinity, "style").sort()
        Buckets(x[rows], np.empty_like(x[rows]), infinity, "content").match(values, out[rows])
    return out
