"""Whose colours the result has: the style's, or those of the content. One table, `COLORS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, wherever brightness is one number
LEAST_VARIANCE = 1e-6  # added in every direction of colour: a grey style has none to spread


def recolor(
    style: Tensor, content: Tensor, *, style_mask: Tensor | None = None, content_mask: Tensor | None = None
) -> Tensor:
    """The style ``(1 or b, 3, h, w)`` with the content's RGB mean and covariance, one for each of ``b`` contents.

    Of all linear maps that do this we take the symmetric one: it moves colours least. Masks ``(h, w)`` say which pixels
    count. The result is clamped to [0, 1].
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
    """Mean ``(b, 3, 1)`` and covariance ``(b, 3, 3)``."""
    pixels = picture.flatten(2) if mask is None else picture[..., mask]
    if not pixels.shape[-1]:  # an empty mask: nothing is styled by it, whatever we say
        pixels = picture.flatten(2)
    pixels = pixels.double()
    mean = pixels.mean(-1, keepdim=True)
    off = pixels - mean
    return mean, off @ off.mT / pixels.shape[-1] + LEAST_VARIANCE * torch.eye(3).to(off)


def _power(covariance: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=torch.finfo(values.dtype).tiny).pow(exponent).unsqueeze(-2) @ vectors.mT


def luminance(rgb: Tensor) -> Tensor:
    """``(..., 1, h, w)`` of ``(..., 3, h, w)``."""
    return (rgb * rgb.new_tensor(LUMA).view(3, 1, 1)).sum(-3, keepdim=True)


def keep_hue(output: Tensor, content: Tensor) -> Tensor:
    """The output's brightness with the content's colours. Both ``(b, 3, h, w)``."""
    return (content + luminance(output - content)).clamp(0, 1)


@dataclass(frozen=True)
class Color:
    """One row: what is done to the style before, as `recolor`, and to the output after, as `keep_hue`."""

    about: str
    before: Callable[..., Tensor] | None = None
    after: Callable[[Tensor, Tensor], Tensor] | None = None


COLORS: Mapping[str, Color] = MappingProxyType({
    "none": Color("the style's colours"),
    "content": Color("the style is given the content's mean colour and covariance first", before=recolor),
    "luminance": Color("only brightness is styled, every pixel keeps its hue", after=keep_hue),
})  # fmt: skip
