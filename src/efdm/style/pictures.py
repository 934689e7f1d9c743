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


def open_picture(given: AnyPicture) -> Picture:
    """Return any accepted input as a `Picture`. The ``rgb`` of a batch keeps its batch dimension."""
    if isinstance(given, Picture):
        return given
    if isinstance(given, Tensor):
        values = given / 255 if given.dtype == torch.uint8 else given
        return Picture(values[:3], values[3:]) if given.ndim == 3 and given.shape[0] == 4 else Picture(values)
    if isinstance(given, bytes | bytearray | memoryview):
        return to_picture(decode(io.BytesIO(given), "bytes"))
    if isinstance(given, str) and not Path(given).exists():
        if given in STYLES:
            return read_picture(styles()[given])
        if close := suggest(given, STYLES):
            raise PictureError(f"file not found: {given}; did you mean the style {close}?")
    if isinstance(given, str | os.PathLike):
        return read_picture(given)
    if hasattr(given, "read"):
        return to_picture(decode(given, str(getattr(given, "name", "the file"))))
    return from_image(given) if isinstance(given, Image.Image) else _from_array(given)


def check_picture(given: Tensor, role: str) -> Callable[[], None]:
    """Raise unless ``given`` is an RGB float tensor. The returned function raises unless its values are in [0, 1].

    Some tolerance allows for the overshoot of resizing. A GPU copies the range of the values to the host asynchronously, so
    work launched before the call does not wait for the copy.
    """
    shape = tuple(given.shape)
    if given.ndim not in (3, 4) or shape[-3] != 3 or 0 in shape:
        raise ValueError(f"{role} must be RGB with shape (3, h, w) or (b, 3, h, w), got {shape}")
    if not given.is_floating_point():
        raise TypeError(f"{role} must be floats in [0, 1], got {given.dtype}; try {role} / 255")
    extremes = torch.stack(given.aminmax()).to("cpu", non_blocking=given.is_cuda)
    copied = torch.cuda.current_stream(given.device).record_event() if given.is_cuda else None

    def check() -> None:
        if copied is not None:
            copied.synchronize()
        low, high = extremes.tolist()
        if not -0.1 <= low <= high <= 1.1:  # also rejects NaN
            hint = f"; try {role} / 255" if high > 1.1 else ""
            raise ValueError(f"{role} must be in [0, 1], got values from {low:.3g} to {high:.3g}{hint}")

    return check


def convert_back(rgb: Tensor, given: AnyPicture, opened: Picture) -> Any:
    """Return ``rgb`` in the type of ``given``, with the alpha channel of ``opened``; paths and files give a `Picture`."""
    picture = replace(opened, rgb=rgb.to(opened.rgb.device).contiguous())
    if isinstance(given, Image.Image):
        return picture.to_pil()
    if not isinstance(given, Tensor | np.ndarray):
        return picture
    values = picture.rgb if picture.alpha is None else torch.cat([picture.rgb, picture.alpha])
    if isinstance(given, Tensor):
        return to_uint8(values) if given.dtype == torch.uint8 else values.to(given.dtype)
    array = values.permute(1, 2, 0).numpy()
    if given.dtype in (np.uint8, np.uint16):
        array = (array * np.iinfo(given.dtype).max).round()
    return array.astype(given.dtype)


def _from_array(given: Any) -> Picture:
    array = np.asarray(given)
    if array.ndim == 2:
        array = np.stack([array] * 3, -1)
    floats = np.issubdtype(array.dtype, np.floating)
    if array.ndim != 3 or array.shape[-1] not in (3, 4) or not (floats or array.dtype in (np.uint8, np.uint16)):
        raise TypeError(
            f"cannot read a picture from {type(given).__name__} with shape {array.shape} and dtype {array.dtype}; expected "
            "a path, bytes, a binary file, a PIL image, a tensor (3, h, w), or an array (h, w, 3) of 8- or 16-bit integers "
            "or of floats in [0, 1]"
        )
    if not floats:
        return to_picture(array)
    values = torch.from_numpy(array.copy()).permute(2, 0, 1).float()
    return Picture(values[:3], values[3:] if len(values) == 4 else None)
