"""Colour profiles: what a file says about its colours, made into sRGB."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

Array = NDArray[Any]  # (h, w, 3 or 4) of uint8 or uint16


def managed(pixels: Array, image: Image.Image) -> Array:
    """The pixels in sRGB, if the file says what its own colours are and the profile can be used."""
    profile = image.info.get("icc_profile")
    if not profile:
        return pixels
    try:
        colours = _srgb(pixels, image, profile)
    except Exception:  # a picture in slightly wrong colours is better than none
        return pixels
    if colours is None:
        return pixels
    return np.concatenate([_widened(colours, pixels.dtype), pixels[..., 3:]], axis=2)


def _srgb(pixels: Array, image: Image.Image, data: bytes) -> Array | None:
    """8-bit sRGB ``(h, w, 3)``; None where the profile is sRGB already, or is one for other channels than the file has."""
    profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
    space = profile.profile.xcolor_space.strip()
    steps = np.linspace(0, 255, 17).round().astype(np.uint8)
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    lattice = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(1, -1, 3)
    gray = image.mode in ("1", "L", "LA") or image.mode.startswith("I")
    if space == "CMYK" and image.mode == "CMYK":
        mode, source, probe = "CMYK", image, None
    elif space == "GRAY" and gray:
        mode, source, probe = "L", Image.fromarray(narrowed(pixels)[..., 0]), ramp
    elif space == "RGB" and image.mode != "CMYK":
        mode, source, probe = "RGB", Image.fromarray(narrowed(pixels)[..., :3]), lattice
    else:
        return None
    convert = ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), mode, "RGB")
    if probe is not None:
        # by what it does, not by its name; the values of a picture that is sRGB already then stay exactly what they are
        sample = Image.fromarray(probe if mode == "RGB" else probe[..., 0])
        moved = np.asarray(ImageCms.applyTransform(sample, convert)).astype(np.int16) - probe
        if abs(moved).max() <= 1:
            return None
    return np.asarray(ImageCms.applyTransform(source, convert))


def narrowed(pixels: Array) -> NDArray[np.uint8]:
    """8 bits of 16, rounded."""
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8) if pixels.dtype == np.uint16 else pixels


def _widened(colours: NDArray[np.uint8], dtype: np.dtype[Any]) -> Array:
    return colours.astype(np.uint16) * 257 if dtype == np.uint16 else colours
