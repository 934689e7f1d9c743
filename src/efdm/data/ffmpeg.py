"""FFmpeg through PyAV: the module, imported on first use, and PNG and TIFF with 16 bits per channel.

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
# name in Pillow -> byte order and options of FFmpeg's encoder; uncompressed TIFF can be read by every program
DEEP: dict[str, tuple[str, dict[str, str]]] = {"PNG": ("be", {}), "TIFF": ("le", {"compression_algo": "raw"})}


def load_av() -> Any:
    """Return the module ``av`` with FFmpeg's own log switched off."""
    with requires("style"):
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


def encode16(pixels: NDArray[np.uint16], name: str) -> bytes:
    """Return pixels ``(h, w, 3 or 4)`` as a file of a row of `DEEP`."""
    av, (order, options) = load_av(), DEEP[name]
    height, width, channels = pixels.shape
    kind = {3: "rgb48", 4: "rgba64"}[channels]
    codec = av.CodecContext.create(name.lower(), "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, f"{kind}{order}", Fraction(1)
    codec.options = options
    frame = av.VideoFrame.from_ndarray(pixels, format=f"{kind}le").reformat(format=f"{kind}{order}")
    return b"".join(bytes(packet) for packet in (*codec.encode(frame), *codec.encode(None)))
