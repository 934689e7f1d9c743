"""Radix sort for long rows on the CPU. Imports numba, so it is loaded on first use.

Rows are sorted by digits, lowest first: three digits of 11 bits for 32-bit floats, two of 8 bits for 16-bit floats. The
kernels take unsigned views of the data (16 or 32 bits), the bit pattern of infinity, which distinguishes float16 from
bfloat16, and a range of rows. Keys are computed in 64 bits because numba widens small unsigned types.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
from numba import float32, uint32, uint64
from numba.extending import overload


def _jit(function, **options):
    # nogil: the functions run in threads; cache: compiled code is stored on disk where a directory is writable
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(nogil=True, **options)(function)


ZERO, ONE, POSITION = uint64(0), uint32(1), uint64(0xFFFFFFFF)
HALF, FLOAT_ONE = float32(0.5), float32(1)
SHIFT = uint64(32)  # where the key begins in a (key, position) word


# Compile-time constants of the word's type, which let loops over digits unroll. They are functions rather than closures over
# numbers because numba cannot cache closures on disk.
def sign_bit(word):
    """Return the sign bit of the float type."""


def digit_bits(word):
    """Return the width of a digit. Counting tables must fit the first-level cache."""


def digits(word):
    """Return the number of digits of a key."""


_BY_TYPE = {sign_bit: {16: 1 << 15, 32: 1 << 31}, digit_bits: {16: 8, 32: 11}, digits: {16: 2, 32: 3}}


def _constant_of_type(function, values):
    @overload(function)
    def choose(word):
        value = values[word.bitwidth]
        return lambda word: value


for _function, _values in _BY_TYPE.items():
    _constant_of_type(_function, _values)


@_jit
def content_key(word, infinity):
    # Both zeros get one key, and all NaN get the last key, so their positions decide the order. Without early returns,
    # because half the values are zero after a ReLU and the branch would be mispredicted.
    sign = uint64(sign_bit(word))
    bits = uint64(word)
    rest = bits & (sign - ONE)
    bits = bits if rest != ZERO else ZERO
    key = (sign + sign - ONE - bits) if bits & sign else (bits | sign)
    return key if rest <= infinity else sign + sign - ONE


@_jit
def style_key(word, infinity):
    # invertible except for the sign of NaN, which is dropped
    sign = uint64(sign_bit(word))
    bits = uint64(word)
    rest = bits & (sign - ONE)
    bits = bits if rest <= infinity else rest
    return (sign + sign - ONE - bits) if bits & sign else (bits | sign)


@_jit
def style_word(key, like):
    """Return the bits of the float that `style_key` maps to ``key``, for words of the type of ``like``."""
    sign = uint64(sign_bit(like))
    return (key ^ sign) if key & sign else (sign + sign - ONE - key)


@_jit
def exclusive_sum(counts):
    """Replace each count by the sum of the counts before it."""
    total = uint32(0)
    for i in range(counts.size):
        count = counts[i]
        counts[i] = total
        total += count


@_jit
def count_digits(items, counts, passes, bits, shift, mask):
    """Compute, for every digit of every pass, the output index of its first item."""
    # separate from the computation of the keys: in one loop neither part is vectorized, and both take 4x as long
    counts[:] = 0
    for i in range(items.size):
        key = uint64(items[i]) >> shift
        for p in range(passes):
            counts[p, (key >> (uint64(p) * bits)) & mask] += ONE
    for p in range(passes):
        exclusive_sum(counts[p])


@_jit
def radix_pass(source, target, offsets, shift, mask):
    for i in range(source.size):
        item = source[i]
        digit = (uint64(item) >> shift) & mask
        offset = offsets[digit]
        offsets[digit] = offset + ONE
        target[offset] = item


@_jit
def sort_style(y, infinity, a, b, counts):
    """Sort one row and return the buffer that holds the result."""
    passes, bits = digits(y[0]), uint64(digit_bits(y[0]))
    mask = (uint64(1) << bits) - uint64(1)
    for i in range(y.size):
        a[i] = style_key(y[i], infinity)
    count_digits(a, counts, passes, bits, ZERO, mask)
    for p in range(passes):
        radix_pass(a, b, counts[p], uint64(p) * bits, mask)
        a, b = b, a
    for i in range(y.size):
        a[i] = style_word(uint64(a[i]), a[i])
    return a


@_jit
def sort_lower_digits(x, infinity, a, b, counts):
    """Return (key, position) words sorted by all digits but the highest.

    The last pass is left to the caller, which writes each element by its rank. The last counts are ready for that pass.
    """
    passes, bits = digits(x[0]), uint64(digit_bits(x[0]))
    mask = (uint64(1) << bits) - uint64(1)
    for i in range(x.size):
        b[i] = (content_key(x[i], infinity) << SHIFT) | uint64(i)
    count_digits(b, counts, passes, bits, SHIFT, mask)
    for p in range(passes - 1):
        radix_pass(b, a, counts[p], SHIFT + uint64(p) * bits, mask)
        a, b = b, a
    return b


@_jit
def scatter_by_rank(items, values, out, counts, bits):
    """Run the last pass, in which the output index of an element is its rank, and write the value of that rank."""
    passes = counts.shape[0]
    shift = SHIFT + uint64(passes - 1) * uint64(bits)
    offsets = counts[passes - 1]
    for i in range(items.size):
        item = items[i]
        digit = item >> shift
        rank = offsets[digit]
        offsets[digit] = rank + ONE
        out[item & POSITION] = values[rank]


@_jit
def workspace(x):
    n = x.shape[1]
    counts = np.empty((digits(x[0, 0]), 1 << digit_bits(x[0, 0])), np.uint32)
    return np.empty(n, np.uint64), np.empty(n, np.uint64), counts


@_jit
def match_sorted(x, values, out, infinity, first, last):
    a, b, counts = workspace(x)
    for r in range(first, last):
        items = sort_lower_digits(x[r], infinity, a, b, counts)
        scatter_by_rank(items, values[r], out[r], counts, digit_bits(x[0, 0]))


@_jit
def sort_match(x, y, out, infinity, first, last):
    a, b, counts = workspace(x)
    ya, yb = np.empty_like(y[0]), np.empty_like(y[0])
    for r in range(first, last):
        values = sort_style(y[r], infinity, ya, yb, counts)
        items = sort_lower_digits(x[r], infinity, a, b, counts)
        scatter_by_rank(items, values, out[r], counts, digit_bits(x[0, 0]))


@_jit
def sort_rows(y, out, infinity, first, last):
    counts = workspace(y)[2]
    a, b = np.empty_like(y[0]), np.empty_like(y[0])
    for r in range(first, last):
        out[r, :] = sort_style(y[r], infinity, a, b, counts)


@_jit
def sort_rank(x, values, ranks, infinity, first, last):
    a, b, counts = workspace(x)
    ranks_in_order = np.arange(x.shape[1]).astype(np.uint32)
    for r in range(first, last):
        items = sort_lower_digits(x[r], infinity, a, b, counts)
        scatter_by_rank(items, ranks_in_order, ranks[r], counts, digit_bits(x[0, 0]))
        for i in range(x.shape[1]):
            values[r, ranks[r, i]] = x[r, i]


# Used by both sorts.
@_jit
def take(values, ranks, out, infinity, first, last):
    for r in range(first, last):
        for i in range(values.shape[1]):
            out[r, i] = values[r, ranks[r, i]]


@partial(_jit, fastmath={"contract"})  # fused multiply-add, as in torch.lerp
def lerp(a, b, weight):
    """Return ``a + weight (b - a)``, and exactly ``a`` where ``a == b``, including infinity."""
    from_style = weight >= HALF  # start from the nearer end, as torch.lerp does, so both ends are exact
    share = weight - FLOAT_ONE if from_style else weight
    between = (b if from_style else a) + share * (b - a)
    between = a if a == b or weight == 0 else between
    return b if weight == 1 else between


@_jit
def mix(x, values, ranks, partners, weights, out, first, last):
    """Blend rows with the partner's values of equal rank. ``out`` may share the memory of ``ranks``."""
    channels = x.shape[0] // partners.size
    for r in range(first, last):
        sample = r // channels
        style = values[partners[sample] * channels + r % channels]
        for i in range(x.shape[1]):
            out[r, i] = style[ranks[r, i]]
        for i in range(x.shape[1]):  # a separate loop, which is vectorized
            out[r, i] = lerp(x[r, i], out[r, i], weights[sample])


@_jit
def inverse(ranks, order, first, last):
    for r in range(first, last):
        for i in range(ranks.shape[1]):
            order[r, ranks[r, i]] = i


@_jit
def mix_backward(grad, order, partners, weights, out, first, last):
    """Add the weighted gradients of all samples that a row was mixed into, by rank."""
    channels = grad.shape[0] // partners.size
    received = np.empty(grad.shape[1], np.float32)
    for r in range(first, last):
        sample = r // channels
        received[:] = 0
        for a in range(partners.size):
            if partners[a] == sample and weights[a] != 0:
                giver = a * channels + r % channels
                for i in range(received.size):
                    received[i] += weights[a] * grad[giver, order[giver, i]]
        for i in range(received.size):
            position = order[r, i]
            out[r, position] = grad[r, position] + received[i]
