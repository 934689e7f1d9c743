"""Colour preservation in style transfer (`COLORS`) and colour spaces for matching (`SPACES`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
# linear sRGB to XYZ, and the white point D65 (IEC 61966-2-1)
RGB_TO_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
WHITE = (0.95047, 1.0, 1.08883)
CUT = 6 / 29  # CIELAB is linear below the cube of this value
LEAST_VARIANCE = 1e-6  # added to the variance in every direction, because a grey style has no variance to scale


def recolor(
    style: Tensor, content: Tensor, *, style_mask: Tensor | None = None, content_mask: Tensor | None = None
) -> Tensor:
    """Return the style ``(1 or b, 3, h, w)`` with the RGB mean and covariance of each of ``b`` contents, clamped to [0, 1].

    Of all linear maps with this effect, the symmetric one changes colours least. Masks ``(h, w)`` select the pixels that
    the statistics are taken from.
    """
    mean_x, covariance_x = _color_statistics(content, content_mask)
    mean_y, covariance_y = _color_statistics(style, style_mask)
    root = _power(covariance_y, 0.5)
    inverse = _power(covariance_y, -0.5)
    change = inverse @ _power(root @ covariance_x @ root, 0.5) @ inverse
    pixels = style.flatten(2).double()
    moved = change @ (pixels - mean_y) + mean_x
    return moved.to(style.dtype).reshape(len(moved), *style.shape[1:]).clamp(0, 1)


def _color_statistics(picture: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean ``(b, 3, 1)`` and the covariance ``(b, 3, 3)`` of the pixels inside the mask."""
    pixels = picture.flatten(2) if mask is None else picture[..., mask]
    if not pixels.shape[-1]:  # an empty mask stylizes nothing, so the colours do not matter
        pixels = picture.flatten(2)
    pixels = pixels.double()
    mean = pixels.mean(-1, keepdim=True)
    centred = pixels - mean
    return mean, centred @ centred.mT / pixels.shape[-1] + LEAST_VARIANCE * torch.eye(3).to(centred)


def _power(covariance: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=torch.finfo(values.dtype).tiny).pow(exponent).unsqueeze(-2) @ vectors.mT


def luminance(rgb: Tensor, dim: int = -3) -> Tensor:
    """Return the luminance of RGB, whose channels are in dimension ``dim``: ``(..., 1, h, w)`` of ``(..., 3, h, w)``."""
    return (rgb * rgb.new_tensor(LUMA).view(3, *[1] * (rgb.ndim - 1 - dim % rgb.ndim))).sum(dim, keepdim=True)


def keep_hue(output: Tensor, content: Tensor) -> Tensor:
    """Return the content ``(b, 3, h, w)`` with the luminance of the output."""
    return (content + luminance(output - content)).clamp(0, 1)


@dataclass(frozen=True)
class Color:
    """A row of `COLORS`: ``before`` changes the style, as `recolor` does, and ``after`` the output, as `keep_hue` does."""

    before: Callable[..., Tensor] | None = None
    after: Callable[[Tensor, Tensor], Tensor] = lambda output, content: output


COLORS: Mapping[str, Color] = {
    "none": Color(),
    "content": Color(before=recolor),
    "luminance": Color(after=keep_hue),
}  # fmt: skip


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


_luma = partial(luminance, dim=0)


@dataclass(frozen=True)
class Space:
    """A row of `SPACES`.

    ``forward(rgb)`` returns the channels to match, and ``back(matched, rgb)`` converts them to RGB after the match.
    """

    forward: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor], Tensor]


SPACES: Mapping[str, Space] = {
    "rgb": Space(lambda rgb: rgb, lambda matched, rgb: matched),
    "lab": Space(rgb_to_lab, lambda matched, rgb: lab_to_rgb(matched)),
    "luminance": Space(_luma, lambda matched, rgb: rgb + (matched - _luma(rgb))),
}  # fmt: skip
