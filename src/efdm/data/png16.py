"""PNG with 16 bits a channel, which Pillow reads as 8 and does not write for colour."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # PNG colour type -> channels: gray, RGB, gray + alpha, RGB + alpha
COLOUR_TYPES = {channels: kind for kind, channels in CHANNELS.items()}


def is_png16(data: bytes) -> bool:
    """Whether `decode` can read it: PNG, 16 bits, not interlaced."""
    return data[:8] == SIGNATURE and len(data) > 28 and data[24] == 16 and data[25] in CHANNELS and data[28] == 0


def decode(data: bytes) -> NDArray[np.uint16]:
    """The values ``(h, w, c)``; a colour named as transparent becomes an alpha channel. ValueError if it is damaged."""
    width, height, _, kind = struct.unpack(">IIBB", data[16:26])
    channels = CHANNELS[kind]
    chunks = list(_chunks(data))
    rows = height * (1 + width * channels * 2)
    unpacked = zlib.decompressobj().decompress(b"".join(body for name, body in chunks if name == b"IDAT"), rows)
    if len(unpacked) != rows:
        raise ValueError("image data ends early")
    raw = np.frombuffer(unpacked, np.uint8).reshape(height, -1)
    plain = _unfilter(raw[:, 0], raw[:, 1:].reshape(height, width, channels * 2))
    values = plain.view(">u2").astype(np.uint16)
    clear = next((body for name, body in chunks if name == b"tRNS"), None)
    if clear is None or kind not in (0, 2):
        return values
    seen = (values != np.frombuffer(clear[: 2 * channels], ">u2")).any(axis=2, keepdims=True)
    return np.concatenate([values, seen * np.uint16(65535)], axis=2)


def encode(values: NDArray[np.uint16]) -> bytes:
    """``(h, w, c)`` values as a PNG file of 16 bits, each row stored as its difference from the row above."""
    height, width, channels = values.shape
    rows = values.astype(">u2").view(np.uint8).reshape(height, -1)
    above = np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])
    filtered = np.concatenate([np.full((height, 1), 2, np.uint8), rows - above], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes())), (b"IEND", b""))
    chunks = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in parts)
    return SIGNATURE + b"".join(chunks)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12


def _unfilter(filters: NDArray[np.uint8], raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo the prediction of each byte from those to the left, above and above left.

    A pixel needs only pixels of the two anti-diagonals before its own, so an anti-diagonal is computed at once. In an image
    with a border of one pixel its members lie ``width`` pixels apart, which makes it a slice.
    """
    height, width, lanes = raw.shape
    if filters.max() > 4:
        raise ValueError("unknown filter type")
    if not filters.any():
        return raw.copy()
    bordered = np.zeros((height + 1, width + 1, lanes), np.uint8)
    bordered[1:, 1:] = raw
    flat = bordered.reshape(-1, lanes)
    for diagonal in range(height + width - 1):
        first, last = max(0, diagonal - width + 1), min(height - 1, diagonal)
        start = (first + 1) * (width + 1) + diagonal - first + 1
        stop = start + (last - first) * width + 1
        # wider than a byte: the predictions add and subtract
        left, up, corner = (flat[start - d : stop - d : width].astype(np.int16) for d in (1, width + 1, width + 2))
        to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
        nearest = np.where(to_up <= to_corner, up, corner)
        paeth = np.where((to_left <= to_up) & (to_left <= to_corner), left, nearest)
        kinds = filters[first : last + 1, None]
        predicted = np.choose(kinds, (np.int16(0), left, up, (left + up) >> 1, paeth))
        flat[start:stop:width] += predicted.astype(np.uint8)
    return np.ascontiguousarray(bordered[1:, 1:])
