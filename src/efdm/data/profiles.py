"""Conversion of colour profiles to sRGB."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

Array = NDArray[Any]  # (h, w, 3 or 4), uint8 or uint16


def convert_to_srgb(pixels: Array, image: Image.Image) -> Array:
    """Return the pixels in sRGB, or unchanged if the file has no usable profile or is sRGB already."""
    colours = None
    if profile := image.info.get("icc_profile"):
        with suppress(Exception):  # slightly wrong colours are better than no picture
            colours = _to_srgb(pixels, image, profile)
    if colours is None:
        return pixels
    if pixels.dtype == np.uint16:
        colours = colours.astype(np.uint16) * 257
    return np.concatenate([colours, pixels[..., 3:]], axis=2)


def _to_srgb(pixels: Array, image: Image.Image, data: bytes) -> Array | None:
    """Return 8-bit sRGB ``(h, w, 3)``, or None if the profile is sRGB or does not fit the channels of the file."""
    profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
    space = profile.profile.xcolor_space.strip()
    gray = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
    if space == "CMYK" and image.mode == "CMYK":
        mode, source, probe = "CMYK", image, None
    elif space == "GRAY" and gray:
        mode, source, probe = "L", Image.fromarray(narrow(pixels)[..., 0]), np.arange(256, dtype=np.uint8)[None]
    elif space == "RGB" and image.mode != "CMYK":
        steps = np.linspace(0, 255, 17).round().astype(np.uint8)
        lattice = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(1, -1, 3)
        mode, source, probe = "RGB", Image.fromarray(narrow(pixels)[..., :3]), lattice
    else:
        return None
    transform = ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), mode, "RGB")
    if probe is not None:
        # compare the converted values, because sRGB profiles have many names; the values of an sRGB picture stay exact
        moved = np.asarray(ImageCms.applyTransform(Image.fromarray(probe), transform)).astype(np.int16)
        if abs(moved - probe.reshape(1, -1, 3 if mode == "RGB" else 1)).max() <= 1:
            return None
    return np.asarray(ImageCms.applyTransform(source, transform))


def narrow(pixels: Array) -> NDArray[np.uint8]:
    """Return pixels with 8 bits per channel, rounded to nearest."""
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8) if pixels.dtype == np.uint16 else pixels
