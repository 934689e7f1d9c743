"""Channels of a picture for matching: integer levels or floats, and a mask of valid pixels."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efdm.data.arrays import KINDS, is_array_file, open_array
from efdm.data.images import LEVELS
from efdm.errors import SettingError
from efdm.style.pictures import AnyPicture, convert_back, open_picture

LEVELS_OF = {"uint8": 256, "uint16": 65536}  # others are floats


@dataclass(frozen=True)
class Planes:
    """``values`` ``(c, h, w)``: int32 below ``levels``, or floats if ``levels`` is 0.

    ``valid`` ``(h, w)`` marks the pixels to match; None marks all.
    """

    values: Tensor
    levels: int
    valid: Tensor | None

    def pick(self, values: Tensor) -> Tensor:
        """Return the valid pixels of ``values`` ``(c, h, w)`` as ``(c, n)``."""
        return values.flatten(1) if self.valid is None else values[:, self.valid]

    def crop(self, first: int, last: int | None) -> Planes:
        """Return the rows ``[first:last]``."""
        valid = None if self.valid is None else self.valid[first:last]
        return replace(self, values=self.values[:, first:last], valid=valid)

    def unit(self) -> Tensor:
        """Return the values as floats; levels are divided by the largest level."""
        return self.values.float() / (self.levels - 1) if self.levels else self.values


def from_array(array: Any, valid: Tensor | None = None, nodata: float | None = None, device: Any = "cpu") -> Planes:
    """Return the planes of an array ``(h, w)`` or ``(h, w, c)``, or of a part of it.

    Pixels are invalid if a channel is ``nodata`` or not finite.
    """
    pixels = np.atleast_3d(np.asarray(array))
    levels = LEVELS_OF.get(pixels.dtype.name, 0)
    if nodata is not None and not levels:
        nodata = pixels.dtype.type(nodata).item()  # as the array stores it: float16 has no 9999
    pixels = np.require(pixels, pixels.dtype.newbyteorder("="), ["C", "W"])  # as torch needs them; other arrays are copied
    kind = torch.int32 if levels else torch.float64 if pixels.dtype == np.float64 else torch.float32
    planar = torch.from_numpy(pixels).permute(2, 0, 1).to(device, kind, copy=True, memory_format=torch.contiguous_format)
    return _make_planes(planar, levels, valid, nodata)


def _make_planes(values: Tensor, levels: int, valid: Tensor | None, nodata: float | None) -> Planes:
    if valid is not None and valid.shape != values.shape[1:]:
        size = " x ".join(map(str, values.shape[1:]))
        raise SettingError(f"the mask has shape {tuple(valid.shape)}, expected that of the picture, {size}", "mask")
    conditions = [] if valid is None else [valid.to(values.device)]
    if not levels:
        conditions.append(values.isfinite().all(0))
    if nodata is not None:
        conditions.append((values != nodata).all(0))
    good = torch.stack(conditions).all(0) if conditions else None
    return Planes(values, levels, None if good is None or good.all() else good)


def open_planes(
    picture: AnyPicture, mask: Any = None, nodata: float | None = None, device: Any = "cpu"
) -> tuple[Planes, Callable[[Tensor], Any]]:
    """Return the planes of a picture, and a function that converts matched values to the type of ``picture``.

    A picture file gives a `Picture`, an array file an array.
    """
    valid = None if mask is None else mask.cpu() > 0 if isinstance(mask, Tensor) else torch.from_numpy(np.array(mask) > 0)
    opened: Any = picture
    if isinstance(picture, str | os.PathLike) and Path(picture).exists() and is_array_file(picture):
        opened = open_array(picture)
    elif not isinstance(picture, Tensor | np.ndarray):
        opened = open_picture(picture)
    if isinstance(opened, np.ndarray):
        if opened.dtype.name not in KINDS or opened.ndim not in (2, 3):
            content = f"{opened.dtype} of shape {opened.shape}"
            raise TypeError(f"the array contains {content}; expected (h, w) or (h, w, channels) of {', '.join(KINDS)}")
        planes = from_array(opened, valid, nodata, device)
        return planes, lambda values: values.permute(1, 2, 0).cpu().numpy().astype(opened.dtype).reshape(opened.shape)
    if isinstance(opened, Tensor):
        if opened.ndim != 3 or not (opened.dtype == torch.uint8 or opened.is_floating_point()):
            content = f"{opened.dtype} of shape {tuple(opened.shape)}"
            raise TypeError(f"the tensor contains {content}; expected (channels, h, w) of uint8 or floats")
        levels = 256 if opened.dtype == torch.uint8 else 0
        wide = torch.int32 if levels else torch.promote_types(opened.dtype, torch.float32)
        nodata = nodata if nodata is None or levels else torch.tensor(nodata, dtype=opened.dtype).item()
        return _make_planes(opened.detach().to(device, wide), levels, valid, nodata), lambda values: values.to(opened)
    if opened.alpha is not None:  # transparent pixels have no colour
        visible = opened.alpha[0] > 0
        valid = visible if valid is None else visible & valid
    top = LEVELS[opened.depth]
    planes = _make_planes((opened.rgb * top).round().int().to(device), top + 1, valid, nodata)
    return planes, lambda values: convert_back(values.cpu().float() / top, picture, opened)
