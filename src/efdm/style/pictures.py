"""What may be given as a picture, and the size at which the network looks at it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from efdm.data import Picture, read_picture
from efdm.data.embedded import STYLES, styles
from efdm.data.images import MAX_PIXELS, from_image, short_side_size

# tensors are (3, h, w) or (b, 3, h, w), RGB in [0, 1]; a string is a file or the name of a painted style
AnyPicture = Tensor | Picture | str | os.PathLike[str] | Any  # Any: arrays (h, w, 3) and PIL's images
Size = int | str | None

USUAL = 1024  # short side: beyond it strokes of a few pixels are too fine to be seen in the whole picture


def working_size(picture: Tensor, size: Size) -> tuple[int, int]:
    """Height and width at which the network works: a short side, "full" for the picture's own, or "auto" (and None)."""
    height, width = picture.shape[-2:]
    if size == "full":
        return height, width
    if size in ("auto", None):
        return (height, width) if min(height, width) <= USUAL else short_side_size(height, width, USUAL)
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"size={size!r}; expected a short side in pixels, 'full' or 'auto'")
    wanted = short_side_size(height, width, size)
    if wanted[0] * wanted[1] > MAX_PIXELS:
        raise ValueError(f"size={size} makes {wanted[0]} x {wanted[1]} pixels of the picture; that is too many, lower it")
    return wanted


def opened(given: AnyPicture) -> Picture | Tensor:
    """A picture of ours, or a tensor, of whatever was given."""
    if isinstance(given, Tensor | Picture):
        return given
    if isinstance(given, str) and given in STYLES and not Path(given).exists():
        return read_picture(styles()[given])
    if isinstance(given, str | os.PathLike):
        return read_picture(given)
    return from_image(given) if isinstance(given, Image.Image) else _from_array(given)


def _from_array(given: Any) -> Tensor:
    """An array ``(h, w)`` or ``(h, w, 3)`` of bytes or of floats in [0, 1]."""
    array = np.asarray(given)
    if array.ndim == 2:
        array = np.stack([array] * 3, -1)
    if array.ndim != 3 or array.shape[-1] != 3 or not (array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)):
        raise TypeError(
            f"a picture of type {type(given).__name__}, shape {array.shape} and {array.dtype}; expected a path, a tensor "
            "(3, h, w), an array (h, w, 3) of bytes or of floats in [0, 1], or an image of PIL"
        )
    values = torch.from_numpy(array.copy()).permute(2, 0, 1)
    return values.float() / 255 if array.dtype == np.uint8 else values.float()
