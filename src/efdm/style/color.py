"""Colour preservation: the table `COLORS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
LEAST_VARIANCE = 1e-6  # added to the variance in every direction, because a grey style has no variance to scale


def recolor(
    style: Tensor, content: Tensor, *, style_mask: Tensor | None = None, content_mask: Tensor | None = None
) -> Tensor:
    """Return the style ``(1 or b, 3, h, w)`` with the RGB mean and covariance of each of ``b`` contents, clamped to [0, 1].

    Of all linear maps with this effect, the symmetric one changes colours least. Masks ``(h, w)`` select the pixels that
    the statistics are taken from.
    """
    mean_x, covariance_x = _colors(content, content_mask)
    mean_y, covariance_y = _colors(style, style_mask)
    root = _power(covariance_y, 0.5)
    inverse = _power(covariance_y, -0.5)
    change = inverse @ _power(root @ covariance_x @ root, 0.5) @ inverse
    pixels = style.flatten(2).double()
    moved = change @ (pixels - mean_y) + mean_x
    return moved.to(style.dtype).reshape(len(moved), *style.shape[1:]).clamp(0, 1)


def _colors(picture: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean ``(b, 3, 1)`` and the covariance ``(b, 3, 3)``."""
    pixels = picture.flatten(2) if mask is None else picture[..., mask]
    if not pixels.shape[-1]:  # an empty mask stylizes nothing, so the colours do not matter
        pixels = picture.flatten(2)
    pixels = pixels.double()
    mean = pixels.mean(-1, keepdim=True)
    off = pixels - mean
    return mean, off @ off.mT / pixels.shape[-1] + LEAST_VARIANCE * torch.eye(3).to(off)


def _power(covariance: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=torch.finfo(values.dtype).tiny).pow(exponent).unsqueeze(-2) @ vectors.mT


def luminance(rgb: Tensor) -> Tensor:
    """Return the luminance ``(..., 1, h, w)`` of RGB ``(..., 3, h, w)``."""
    return (rgb * rgb.new_tensor(LUMA).view(3, 1, 1)).sum(-3, keepdim=True)


def keep_hue(output: Tensor, content: Tensor) -> Tensor:
    """Return the content ``(b, 3, h, w)`` with the luminance of the output."""
    return (content + luminance(output - content)).clamp(0, 1)


@dataclass(frozen=True)
class Color:
    """A row of `COLORS`: ``before`` changes the style, as `recolor` does, and ``after`` the output, as `keep_hue` does."""

    about: str
    before: Callable[..., Tensor] | None = None
    after: Callable[[Tensor, Tensor], Tensor] = lambda output, content: output


COLORS: Mapping[str, Color] = MappingProxyType({
    "none": Color("the colours of the style"),
    "content": Color("the style takes the mean colour and covariance of the content first", before=recolor),
    "luminance": Color("only the luminance is stylized", after=keep_hue),
})  # fmt: skip
