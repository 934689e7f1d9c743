"""FFmpeg through PyAV: the module, imported on first use, and PNG with 16 bits per channel.

Pillow reads 16-bit colour as 8 bits and cannot write it.
"""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efdm.errors import requires

PNG = b"\x89PNG\r\n\x1a\n"


def load_av() -> Any:
    """Return the module ``av`` with FFmpeg's own log switched off."""
    with requires("video"):
        import av
    av.logging.set_level(None)
    return av


def is_png16(head: bytes) -> bool:
    """Return True if a file that starts with these 25 bytes is a PNG with 16 bits per channel."""
    return head[:8] == PNG and head[24:25] == b"\x10"


def decode_png16(data: bytes) -> NDArray[np.uint16]:
    """Return the pixels ``(h, w, 3)``, or ``(h, w, 4)`` if the file has alpha or a transparent colour."""
    with load_av().open(io.BytesIO(data), format="png_pipe") as container:
        frame = next(container.decode(video=0))
    has_alpha = any(component.is_alpha for component in frame.format.components)
    return frame.to_ndarray(format="rgba64le" if has_alpha else "rgb48le")


def encode_png16(pixels: NDArray[np.uint16]) -> bytes:
    """Return pixels ``(h, w, 3 or 4)`` as a PNG file."""
    av = load_av()
    height, width, channels = pixels.shape
    name = {3: "rgb48", 4: "rgba64"}[channels]
    codec = av.CodecContext.create("png", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, f"{name}be", Fraction(1)
    frame = av.VideoFrame.from_ndarray(pixels, format=f"{name}le").reformat(format=f"{name}be")
    return b"".join(bytes(packet) for packet in (*codec.encode(frame), *codec.encode(None)))
