"""Long rows on the CPU, sorted digit by digit, lowest first: three digits of 11 bits for 32-bit floats, two of 8 for 16-bit
floats. Imports numba, so it is loaded on first use.

The kernels take unsigned views of the data (16 or 32 bits wide), the bit pattern of infinity (it tells float16 from
bfloat16) and the range of rows to work on. Keys are computed in 64 bits, because numba widens small unsigned types.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
from numba import float32, uint32, uint64
from numba.extending import overload


def _jit(function, **options):
    # nogil: cpu.py runs it in threads; cache: compiled code is kept on disk between runs, if there is a place to write to
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(nogil=True, **options)(function)


ZERO, ONE, POSITION = uint64(0), uint32(1), uint64(0xFFFFFFFF)
HALF, FLOAT_ONE = float32(0.5), float32(1)
SHIFT = uint64(32)  # where the key begins in a (key, position) word


# Known when a kernel is compiled for a type, so that its loops over digits unroll. Functions of the word's type and not
# closures over numbers, because numba cannot keep closures on disk.
def sign_bit(word):
    """The sign bit of the float behind the word."""


def digit_bits(word):
    """Width of a digit: counting tables must stay in the first-level cache."""


def digits(word):
    """Digits of a key."""


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
    # Equal values get equal keys: both zeros, and all NaN (which sort last), so that position decides among them.
    # Written without early returns: after a ReLU half the values are zero, and a branch on that is mispredicted.
    sign = uint64(sign_bit(word))
    bits = uint64(word)
    rest = bits & (sign - ONE)
    bits = bits if rest != ZERO else ZERO
    key = (sign + sign - ONE - bits) if bits & sign else (bits | sign)
    return key if rest <= infinity else sign + sign - ONE


@_jit
def style_key(word, infinity):
    # the bits must survive the way back, so only the sign of a NaN is dropped
    sign = uint64(sign_bit(word))
    bits = uint64(word)
    rest = bits & (sign - ONE)
    bits = bits if rest <= infinity else rest
    return (sign + sign - ONE - bits) if bits & sign else (bits | sign)


@_jit
def count_digits(items, counts, passes, bits, shift, mask):
    """For every digit of every pass, the place of its first item."""
    # a loop of its own: with the keys computed in the same loop, neither part is vectorised and both take 4x as long
    counts[:] = 0
    for i in range(items.size):
        key = uint64(items[i]) >> shift
        for p in range(passes):
            counts[p, (key >> (uint64(p) * bits)) & mask] += ONE
    for p in range(passes):
        total = uint32(0)
        for digit in range(counts.shape[1]):
            count = counts[p, digit]
            counts[p, digit] = total
            total += count


@_jit
def one_pass(source, target, places, shift, mask):
    for i in range(source.size):
        item = source[i]
        digit = (uint64(item) >> shift) & mask
        place = places[digit]
        places[digit] = place + ONE
        target[place] = item


@_jit
def sorted_style(y, infinity, a, b, counts):
    """The sorted values of one row, in one of the two buffers."""
    passes, bits, sign = digits(y[0]), uint64(digit_bits(y[0])), uint64(sign_bit(y[0]))
    mask = (uint64(1) << bits) - uint64(1)
    for i in range(y.size):
        a[i] = style_key(y[i], infinity)
    count_digits(a, counts, passes, bits, ZERO, mask)
    for p in range(passes):
        one_pass(a, b, counts[p], uint64(p) * bits, mask)
        a, b = b, a
    for i in range(y.size):
        key = uint64(a[i])
        a[i] = (key ^ sign) if key & sign else (sign + sign - ONE - key)
    return a


@_jit
def nearly_sorted_content(x, infinity, a, b, counts):
    """(key, position) words sorted by all digits but the highest; the last counts are ready for the last pass.

    The last pass is the caller's: it knows what to do with an element once its rank is known.
    """
    passes, bits = digits(x[0]), uint64(digit_bits(x[0]))
    mask = (uint64(1) << bits) - uint64(1)
    for i in range(x.size):
        b[i] = (content_key(x[i], infinity) << SHIFT) | uint64(i)
    count_digits(b, counts, passes, bits, SHIFT, mask)
    for p in range(passes - 1):
        one_pass(b, a, counts[p], SHIFT + uint64(p) * bits, mask)
        a, b = b, a
    return b


@_jit
def place_by_rank(items, values, out, counts, bits):
    """The last pass: the place of an element is its rank, and it receives the value of that rank."""
    passes = counts.shape[0]
    shift = SHIFT + uint64(passes - 1) * uint64(bits)
    places = counts[passes - 1]
    for i in range(items.size):
        item = items[i]
        digit = item >> shift
        rank = places[digit]
        places[digit] = rank + ONE
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
        items = nearly_sorted_content(x[r], infinity, a, b, counts)
        place_by_rank(items, values[r], out[r], counts, digit_bits(x[0, 0]))


@_jit
def sort_match(x, y, out, infinity, first, last):
    a, b, counts = workspace(x)
    ya, yb = np.empty_like(y[0]), np.empty_like(y[0])
    for r in range(first, last):
        values = sorted_style(y[r], infinity, ya, yb, counts)
        items = nearly_sorted_content(x[r], infinity, a, b, counts)
        place_by_rank(items, values, out[r], counts, digit_bits(x[0, 0]))


@_jit
def sort_rows(y, out, infinity, first, last):
    counts = workspace(y)[2]
    a, b = np.empty_like(y[0]), np.empty_like(y[0])
    for r in range(first, last):
        out[r, :] = sorted_style(y[r], infinity, a, b, counts)


@_jit
def sort_rank(x, values, ranks, infinity, first, last):
    a, b, counts = workspace(x)
    numbers = np.arange(x.shape[1]).astype(np.uint32)
    for r in range(first, last):
        items = nearly_sorted_content(x[r], infinity, a, b, counts)
        place_by_rank(items, numbers, ranks[r], counts, digit_bits(x[0, 0]))
        for i in range(x.shape[1]):
            values[r, ranks[r, i]] = x[r, i]


# Not about sorting, and the same for all rows.
@_jit
def take(values, ranks, out, infinity, first, last):
    for r in range(first, last):
        for i in range(values.shape[1]):
            out[r, i] = values[r, ranks[r, i]]


@partial(_jit, fastmath={"contract"})  # product and sum are rounded once, as in torch.lerp
def blended(a, b, weight):
    """``a + weight (b - a)``. The same value on both sides stays, infinity too."""
    from_style = weight >= HALF  # from the nearer end, as torch.lerp does: both ends are exact
    share = weight - FLOAT_ONE if from_style else weight
    between = (b if from_style else a) + share * (b - a)
    between = a if a == b or weight == 0 else between
    return b if weight == 1 else between


@_jit
def mix(x, values, ranks, partners, weights, out, first, last):
    """Rows of floats, blended with the values of the partner at their ranks. ``out`` may be the memory of ``ranks``."""
    channels = x.shape[0] // partners.size
    for r in range(first, last):
        sample = r // channels
        style = values[partners[sample] * channels + r % channels]
        for i in range(x.shape[1]):
            out[r, i] = style[ranks[r, i]]
        for i in range(x.shape[1]):  # apart from the loop before: this one is vectorised
            out[r, i] = blended(x[r, i], out[r, i], weights[sample])
