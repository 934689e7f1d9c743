from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from efdm.data import png16


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def slow_png(values: np.ndarray, filters: list[int], extra: bytes = b"", interlace: int = 0) -> bytes:
    """The obvious encoder: byte by byte, as the PNG specification describes its five filters."""
    height, width, channels = values.shape
    step = 2 * channels
    rows = [list(values[y].astype(">u2").tobytes()) for y in range(height)]
    out = bytearray()
    for y, kind in enumerate(filters):
        out.append(kind)
        for x, value in enumerate(rows[y]):
            a = rows[y][x - step] if x >= step else 0
            b = rows[y - 1][x] if y else 0
            c = rows[y - 1][x - step] if y and x >= step else 0
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            out.append((value - (0, a, b, (a + b) // 2, nearest)[kind]) % 256)
    header = struct.pack(">IIBBBBB", width, height, 16, png16.COLOUR_TYPES[channels], 0, 0, interlace)
    packed = zlib.compress(bytes(out))
    middle = chunk(b"IDAT", packed[:7]) + chunk(b"IDAT", packed[7:])  # a file may cut its data anywhere
    return png16.SIGNATURE + chunk(b"IHDR", header) + extra + middle + chunk(b"IEND", b"")


def noise(height: int, width: int, channels: int) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 65536, (height, width, channels), dtype=np.uint16)
    values[: height // 2] //= 9  # calm rows too: predictions that fit and predictions that tie
    return values


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "filters",
    [[0] * 9, [1] * 9, [2] * 9, [3] * 9, [4] * 9, [4, 3, 2, 1, 0, 1, 2, 3, 4]],
    ids=["none", "left", "up", "average", "paeth", "mixed"],
)
def test_every_filter_is_undone(channels: int, filters: list[int]) -> None:
    values = noise(9, 7, channels)
    assert np.array_equal(png16.decode(slow_png(values, filters)), values)


@pytest.mark.parametrize("shape", [(1, 1), (1, 8), (8, 1), (2, 2)], ids=["one_pixel", "one_row", "one_column", "tiny"])
def test_diagonals_of_thin_pictures(shape: tuple[int, int]) -> None:
    values = noise(*shape, 3)
    assert np.array_equal(png16.decode(slow_png(values, [4] * shape[0])), values)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_what_is_encoded_is_decoded(channels: int) -> None:
    values = noise(6, 5, channels)
    assert np.array_equal(png16.decode(png16.encode(values)), values)


def test_pillow_reads_what_we_encode() -> None:
    gray, colour = noise(6, 5, 1), noise(6, 5, 3)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png16.encode(gray)))), gray[..., 0])
    seen = np.asarray(Image.open(io.BytesIO(png16.encode(colour)))).astype(int)
    assert seen.shape == (6, 5, 3)
    assert abs(seen - colour / 257).max() <= 1  # Pillow keeps 8 of the 16 bits


def test_a_transparent_colour_becomes_alpha() -> None:
    values = noise(4, 4, 3)
    values[1, 2] = (1, 2, 3)
    decoded = png16.decode(slow_png(values, [4] * 4, chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3))))
    assert np.array_equal(decoded[..., :3], values)
    assert np.argwhere(decoded[..., 3] == 0).tolist() == [[1, 2]]
    assert decoded[0, 0, 3] == 65535


def test_only_what_can_be_decoded_is_claimed() -> None:
    assert png16.is_png16(slow_png(noise(2, 2, 3), [0, 0]))
    assert not png16.is_png16(slow_png(noise(2, 2, 3), [0, 0], interlace=1))
    eight = io.BytesIO()
    Image.new("RGB", (2, 2)).save(eight, "PNG")
    assert not png16.is_png16(eight.getvalue())


def test_missing_rows_and_unknown_filters_are_errors() -> None:
    whole = png16.encode(noise(4, 4, 3))
    fewer_rows = whole[:16] + struct.pack(">II", 4, 5) + whole[24:]  # the header asks for one row more
    with pytest.raises(ValueError, match="ends early"):
        png16.decode(fewer_rows)
    with pytest.raises(ValueError, match="filter"):
        png16.decode(bad_filter())


def bad_filter() -> bytes:
    header = struct.pack(">IIBBBBB", 1, 1, 16, 0, 0, 0, 0)
    body = zlib.compress(bytes([5, 0, 0]))
    return png16.SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
