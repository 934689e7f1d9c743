"""Prepared styles (`Look`), and masks on feature maps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from efdm.data import read_mask, resize
from efdm.data.images import from_image, to_mask
from efdm.ops import PreparedStyle, interpolate_styles
from efdm.text import plural

# (h, w) of bool, uint8, or floats in [0, 1], or the path of a picture; "Any" covers arrays and PIL images
AnyMask = Tensor | str | os.PathLike[str] | Any

SAME_COLOR = 0.12  # difference from the median colour, in every channel, within which a pixel counts as empty
EMPTY_FROM, EMPTY_STRENGTH = 0.8, 0.5  # the share of empty pixels that lowers the strength; the strength of a uniform style
FAINT = 1 / 16  # value of a mask up to which a pixel counts as outside, for example because of noise in a JPEG file
SAMPLES = 65_536  # pixels of a style from which its share of empty pixels is estimated


@dataclass(frozen=True, eq=False)
class Look:
    """One or several styles with their weights, prepared by `Stylizer.prepare` for any number of contents and any method.

    ``features`` holds the sorted features of each style after every stage. ``pictures`` and ``masks`` are their sources;
    ``preserve_color="content"`` recolours them for each content.
    """

    pictures: tuple[Tensor, ...]
    masks: tuple[Tensor | None, ...]
    weights: tuple[float, ...]
    features: tuple[tuple[PreparedStyle, ...], ...]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{style.shape[-2]} x {style.shape[-1]}" for style in self.pictures)
        return f"Look(styles of {shapes}, weights={tuple(round(weight, 3) for weight in self.weights)})"

    @cached_property
    def strength(self) -> float | Tensor:
        """The automatic strength: 1, or less if the styles are nearly empty; one value for each style of a batch.

        A result contains every value as often as the style does, so a nearly empty style would erase the content.
        """
        shares = torch.stack([emptiness(p, m) for p, m in zip(self.pictures, self.masks, strict=True)], -1)
        over = ((shares - EMPTY_FROM) / (1 - EMPTY_FROM)).clamp(min=0) @ shares.new_tensor(self.weights)
        strength = 1 - (1 - EMPTY_STRENGTH) * over
        return strength.item() if len(strength) == 1 else strength

    @property
    def nbytes(self) -> int:
        """The size in memory. A stage holds its values twice: sorted, and unsorted for joint matchers."""
        values = (part.values for parts in self.features for part in parts)
        return sum(x.nbytes for x in self.pictures) + 2 * sum(x.nbytes for x in values)

    def copy(self) -> Look:
        """Return a copy of the look with separate caches."""
        features = tuple(tuple(replace(part, _cache={}) for part in parts) for parts in self.features)
        return replace(self, features=features)

    def mixed(self, weights: Sequence[float]) -> Look:
        """Return the same styles with other weights."""
        return replace(self, weights=normalize_weights(weights, len(self.features)))

    def match(self, x: Tensor, depth: int, channels: slice, method: str, **options: object) -> Tensor:
        """Match content features after stage ``depth``, restricted to ``channels``, to the weighted styles."""
        styles, weights = [_select(style[depth], channels) for style in self.features], self.weights
        if method == "efdm" and len(styles) > 1 and options.keys() <= {"ties", "generator", "tolerance"}:
            # every style assigns its i-th value to rank i, so one match to the averaged sorted values is enough
            rows = [style.resampled(x.shape[2:].numel(), "interpolate") for style in styles]
            average = sum((weight * row for weight, row in zip(weights, rows, strict=True)), torch.zeros(()))
            styles, weights = [PreparedStyle(average)], (1.0,)
        return interpolate_styles(x, styles, weights, method=method, **options)


def emptiness(pictures: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the share of pixels close to the median colour, ``(b,)``, of pictures ``(b, 3, h, w)`` inside a mask."""
    pixels = pictures.flatten(2)
    if mask is not None:
        pixels = pictures[..., style_cells(mask, pictures.shape[-2:], 1)]
    pixels = pixels[..., :: -(-pixels.shape[-1] // SAMPLES)]
    return ((pixels - pixels.median(-1, keepdim=True).values).abs().amax(1) < SAME_COLOR).float().mean(-1)


def corner_weights(x: float, y: float, count: int = 4) -> tuple[float, ...]:
    """Return the weights of up to four styles at a point of a square with the styles in its corners.

    The corners are top left, top right, bottom left and bottom right; ``x`` and ``y`` are in [0, 1], from the top left.
    Weights are bilinear and sum to 1. Two styles ignore ``y``.

    >>> corner_weights(0.5, 0.0), corner_weights(0.25, 1.0, count=2)
    ((0.5, 0.5, 0.0, 0.0), (0.75, 0.25))
    """
    if count <= 2:
        return normalize_weights((1 - x, x) if count == 2 else (1,), count)
    weights = ((1 - y) * (1 - x), (1 - y) * x, y * (1 - x), y * x)[:count]
    # three styles: all weights vanish in the empty corner, where the limit along the diagonal mixes its neighbours
    return normalize_weights(weights if sum(weights) else (0, 1, 1), count)


def _select(style: PreparedStyle, channels: slice) -> PreparedStyle:
    return style if channels == slice(None) else PreparedStyle(style.values[:, channels], style.mask)


def normalize_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return ``count`` weights divided by their sum; None means equal weights."""
    values = [1.0] * count if weights is None else [float(w) for w in weights]
    if len(values) != count or not count:
        counts = f"{plural(count, 'style')} and {plural(len(values), 'weight')}"
        raise ValueError(f"expected at least one style and one weight for each, got {counts}")
    if not all(w >= 0 for w in values) or not 0 < sum(values) < float("inf"):  # also rejects NaN
        raise ValueError(f"weights must be >= 0 with a positive finite sum, got {values}")
    return tuple(w / sum(values) for w in values)


def coverage(mask: Tensor, size: Sequence[int], stride: int) -> Tensor:
    """Return the fraction of each ``stride`` x ``stride`` cell that a mask ``(h, w)`` covers in an image of ``size``."""
    share = mask[None, None].float()
    if mask.shape != size:
        share = F.interpolate(share, size=size, mode="area")
    return F.avg_pool2d(share, stride, ceil_mode=True)[0, 0]  # cells at the border average over the pixels inside


def content_cells(mask: Tensor, size: Sequence[int], stride: int) -> Tensor:
    """Return a content mask on a feature map: every cell that the mask touches, soft edges included.

    Pixels outside the mask are replaced later, so the network may change them.
    """
    touched = coverage(mask > FAINT, size, stride) > 0
    return touched if touched.any() else coverage(mask, size, stride) > 0


def without_overlap(masks: Sequence[Tensor]) -> list[Tensor]:
    """Return the visible share ``(h, w)`` in [0, 1] of each mask, where a later mask covers an earlier one."""
    covered = torch.zeros_like(masks[0], dtype=torch.float32)
    visible = []
    for mask in reversed(masks):
        visible.append(torch.minimum(mask.float(), 1 - covered))
        covered = covered + visible[-1]
    return visible[::-1]


def style_cells(mask: Tensor, size: Sequence[int], stride: int) -> Tensor:
    """Return a style mask on a feature map: cells that are at least half covered, or else every touched cell."""
    share = coverage(mask, size, stride)
    return share >= 0.5 if (share >= 0.5).any() else share > 0


def checked_mask(mask: AnyMask | None, picture: Tensor, role: str) -> Tensor | None:
    """Return a mask as floats in [0, 1] on the picture's device. Only files are resized to the picture."""
    if mask is None:
        return None
    size = tuple(picture.shape[-2:])
    if isinstance(mask, str | os.PathLike):
        mask = resize(read_mask(mask)[None], size)[0]
    elif isinstance(mask, Image.Image):
        mask = to_mask(from_image(mask), f"the {role} mask")
    elif not isinstance(mask, Tensor):
        array = np.array(mask)
        if array.dtype.kind not in "biuf":
            kind = type(mask).__name__
            raise TypeError(f"{role} mask must be a path, a PIL image, or an array or tensor of numbers, got {kind}")
        mask = torch.from_numpy(array)
    if mask.shape != size:
        raise ValueError(f"{role} mask must have the size of the {role}, {size}, got {tuple(mask.shape)}")
    scale = 255 if mask.dtype == torch.uint8 else 1
    if scale == 255 and mask.max() == 1:
        raise ValueError(f"{role} mask of uint8 must have values from 0 to 255, got 0 and 1; try mask > 0")
    values = mask.to(picture.device, torch.float32) / scale
    if not bool(((values >= 0) & (values <= 1)).all()):  # also rejects NaN
        low, high = values.min().item(), values.max().item()
        raise ValueError(f"{role} mask must be bool, uint8, or floats in [0, 1], got values from {low:.3g} to {high:.3g}")
    if not values.any():
        raise ValueError(f"{role} mask is empty; select at least one pixel, or omit the mask")
    return values


def intersect(mask: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Return the intersection of two masks in [0, 1]; None selects everything."""
    return mask if other is None else other if mask is None else mask * other


def paste_inside(output: Tensor, content: Tensor, masks: Sequence[Tensor | None]) -> Tensor:
    """Return the output inside the masks and the content outside, blended where masks are between 0 and 1.

    None selects everything.
    """
    selected = [mask for mask in masks if mask is not None]
    if len(selected) < len(masks):
        return output
    return torch.lerp(content, output, sum(without_overlap(selected), torch.zeros(())).to(content))
