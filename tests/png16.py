"""A plain PNG encoder for tests: 16 bits per channel, 1 to 4 channels, no filters."""

import struct
import zlib

import numpy as np

COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png16(values: np.ndarray, *extra: bytes) -> bytes:
    """Return ``(h, w, channels)`` values as a PNG file with ``extra`` chunks before the pixels."""
    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, 0)
    rows = values.astype(">u2").view(np.uint8).reshape(height, -1)
    packed = zlib.compress(np.pad(rows, ((0, 0), (1, 0))).tobytes())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(extra) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
