"""Pictures in every accepted type, and the size at which the network runs."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from efdm.data import Picture, PictureError, read_picture
from efdm.data.embedded import STYLES, styles
from efdm.data.images import MAX_PIXELS, decode, from_image, short_side_size, to_picture, to_uint8
from efdm.errors import SettingError
from efdm.text import suggest

# Tensors are (3 or 4, h, w) or (b, 3, h, w), arrays (h, w), (h, w, 3) or (h, w, 4), of integers or of floats in [0, 1].
# A string is a path or the name of a painted style. "Any" covers PIL images, arrays and binary files.
AnyPicture = Tensor | Picture | str | os.PathLike[str] | bytes | Any
Size = SupportsIndex | str | None  # any integer type, "auto" or "full"

MAX_ASPECT = 16  # limits the long side of an enlarged picture to this multiple of the requested short side
AUTO_SIDE = 1024  # short side above which size="auto" resizes: brush strokes a few pixels wide would be too fine to see


def check_size(size: Size, name: str = "size") -> None:
    """Raise unless ``size`` is a positive number, "full", "auto" or None."""
    if size not in ("auto", "full", None) and not (isinstance(size, SupportsIndex) and index(size) > 0):
        raise SettingError(f"{name} must be a short side in pixels, 'full' or 'auto', got {size!r}", name)


def working_size(picture: Tensor, size: Size) -> tuple[int, int]:
    """Return height and width at which the network runs; ``size`` is a short side, "full", or "auto" (or None)."""
    check_size(size)
    height, width = picture.shape[-2:]
    if size in ("auto", None):
        size = "full" if min(height, width) <= AUTO_SIDE else AUTO_SIDE
    if size == "full":
        return height, width
    size = index(size)  # type: ignore[arg-type]
    resized = short_side_size(height, width, size)
    if max(resized) > (limit := max(height, width, MAX_ASPECT * size)):  # a row of pixels would become a huge picture
        resized = max(1, round(height * limit / max(height, width))), max(1, round(width * limit / max(height, width)))
    if resized[0] * resized[1] > MAX_PIXELS:
        raise ValueError(f"size={size} resizes the picture to {resized[0]} x {resized[1]}, too many pixels; lower it")
    return resized


def open_picture(source: AnyPicture) -> Picture:
    """Return any accepted input as a `Picture`. The ``rgb`` of a batch keeps its batch dimension."""
    if isinstance(source, Picture):
        return source
    if isinstance(source, Tensor):
        values = source / 255 if source.dtype == torch.uint8 else source
        return Picture(values[:3], values[3:]) if source.ndim == 3 and source.shape[0] == 4 else Picture(values)
    if isinstance(source, bytes | bytearray | memoryview):
        return to_picture(decode(io.BytesIO(source), "bytes"))
    if isinstance(source, str) and not Path(source).exists():
        if source in STYLES:
            return read_picture(styles()[source])
        if close := suggest(source, STYLES):
            raise PictureError(f"file not found: {source}; did you mean the style {close}?")
    if isinstance(source, str | os.PathLike):
        return read_picture(source)
    if hasattr(source, "read"):
        return to_picture(decode(source, str(getattr(source, "name", "the file"))))
    return from_image(source) if isinstance(source, Image.Image) else _from_array(source)


def check_picture(picture: Tensor, role: str) -> Callable[[], None]:
    """Raise unless ``picture`` is an RGB float tensor. The returned function raises unless its values are in [0, 1].

    Some tolerance allows for the overshoot of resizing. A GPU copies the range of the values to the host asynchronously, so
    work launched before the call does not wait for the copy.
    """
    shape = tuple(picture.shape)
    if picture.ndim not in (3, 4) or shape[-3] != 3 or 0 in shape:
        raise ValueError(f"{role} must be RGB with shape (3, h, w) or (b, 3, h, w), got {shape}")
    if not picture.is_floating_point():
        raise TypeError(f"{role} must be floats in [0, 1], got {picture.dtype}; try {role} / 255")
    extremes = torch.stack(picture.aminmax()).to("cpu", non_blocking=picture.is_cuda)
    copied = torch.cuda.current_stream(picture.device).record_event() if picture.is_cuda else None

    def check() -> None:
        if copied is not None:
            copied.synchronize()
        low, high = extremes.tolist()
        if not -0.1 <= low <= high <= 1.1:  # also rejects NaN
            hint = f"; try {role} / 255" if high > 1.1 else ""
            raise ValueError(f"{role} must be in [0, 1], got values from {low:.3g} to {high:.3g}{hint}")

    return check


def convert_back(rgb: Tensor, original: AnyPicture, opened: Picture) -> Any:
    """Return ``rgb`` in the type of ``original``, with the alpha channel of ``opened``; paths and files give a `Picture`."""
    picture = replace(opened, rgb=rgb.to(opened.rgb.device).contiguous())
    if isinstance(original, Image.Image):
        return picture.to_pil()
    if not isinstance(original, Tensor | np.ndarray):
        return picture
    values = picture.rgb if picture.alpha is None else torch.cat([picture.rgb, picture.alpha])
    if isinstance(original, Tensor):
        return to_uint8(values) if original.dtype == torch.uint8 else values.to(original.dtype)
    array = values.permute(1, 2, 0).numpy()
    if original.dtype in (np.uint8, np.uint16):
        array = (array * np.iinfo(original.dtype).max).round()
    return array.astype(original.dtype)


def _from_array(source: Any) -> Picture:
    array = np.asarray(source)
    if array.ndim == 2:
        array = np.stack([array] * 3, -1)
    floats = np.issubdtype(array.dtype, np.floating)
    if array.ndim != 3 or array.shape[-1] not in (3, 4) or not (floats or array.dtype in (np.uint8, np.uint16)):
        raise TypeError(
            f"cannot read a picture from {type(source).__name__} with shape {array.shape} and dtype {array.dtype}; expected "
            "a path, bytes, a binary file, a PIL image, a tensor (3, h, w), or an array (h, w, 3) of 8- or 16-bit integers "
            "or of floats in [0, 1]"
        )
    if not floats:
        return to_picture(array)
    values = torch.from_numpy(array.copy()).permute(2, 0, 1).float()
    return Picture(values[:3], values[3:] if len(values) == 4 else None)
