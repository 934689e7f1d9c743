"""Colour spaces in which pictures are matched: the table `SPACES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from efdm.style.color import LUMA

# linear sRGB to XYZ, and the white point D65 (IEC 61966-2-1)
RGB_TO_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
WHITE = (0.95047, 1.0, 1.08883)
CUT = 6 / 29  # CIELAB is linear below the cube of this value


def rgb_to_lab(rgb: Tensor) -> Tensor:
    """Convert sRGB ``(3, ...)`` in [0, 1] to CIELAB, scaled to [0, 1]: L / 100, (a + 128) / 255, (b + 128) / 255."""
    linear = torch.where(rgb > 0.04045, ((rgb.clamp(min=0) + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    xyz = torch.tensordot(_matrix(rgb), linear, 1)
    x, y, z = torch.where(xyz > CUT**3, xyz.clamp(min=CUT**3) ** (1 / 3), xyz / (3 * CUT**2) + 4 / 29)
    return torch.stack([1.16 * y - 0.16, (500 * (x - y) + 128) / 255, (200 * (y - z) + 128) / 255])


def lab_to_rgb(lab: Tensor) -> Tensor:
    """Convert scaled CIELAB back to sRGB. Colours outside the gamut have values outside [0, 1]."""
    y = (lab[0] + 0.16) / 1.16
    f = torch.stack([y + (lab[1] * 255 - 128) / 500, y, y - (lab[2] * 255 - 128) / 200])
    xyz = torch.where(f > CUT, f**3, 3 * CUT**2 * (f - 4 / 29))
    linear = torch.tensordot(torch.linalg.inv(_matrix(lab)), xyz, 1)
    return torch.where(linear > 0.0031308, 1.055 * linear.clamp(min=0.0031308) ** (1 / 2.4) - 0.055, linear * 12.92)


def _matrix(like: Tensor) -> Tensor:
    return torch.tensor(RGB_TO_XYZ).to(like) / torch.tensor(WHITE).to(like)[:, None]


def luma(rgb: Tensor) -> Tensor:
    """Return the luminance ``(1, ...)`` of RGB ``(3, ...)``."""
    return torch.tensordot(rgb.new_tensor(LUMA), rgb, 1)[None]


@dataclass(frozen=True)
class Space:
    """A row of `SPACES`. ``back(matched, rgb)`` returns the RGB of the channels that ``rgb`` is matched to."""

    about: str
    forward: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor], Tensor]


SPACES: Mapping[str, Space] = MappingProxyType({
    "rgb": Space("red, green and blue", lambda rgb: rgb, lambda matched, rgb: matched),
    "lab": Space("CIELAB: lightness and two colour axes", rgb_to_lab, lambda matched, rgb: lab_to_rgb(matched)),
    "luminance": Space("brightness only", luma, lambda matched, rgb: rgb + (matched - luma(rgb))),
})  # fmt: skip
