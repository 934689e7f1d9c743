"""A look: one or several styles, made ready once and used for any number of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.ops import PreparedStyle, interpolate_styles


@dataclass(frozen=True, eq=False)
class Look:
    """Styles with their shares of the mix. Made by `Stylizer.prepare`; any method can use it.

    ``features`` holds, for each style, its sorted features after every stage; ``pictures`` and ``masks`` are what they
    were made of, for those who change a style to suit a content.
    """

    pictures: tuple[Tensor, ...]
    masks: tuple[Tensor | None, ...]
    weights: tuple[float, ...]
    features: tuple[tuple[PreparedStyle, ...], ...]
    _averages: dict[tuple[int, int], PreparedStyle] = field(default_factory=dict, repr=False)

    def mixed(self, weights: Sequence[float]) -> Look:
        """The same styles in other shares."""
        return replace(self, weights=shares(weights, len(self.features)), _averages={})

    def match(self, x: Tensor, depth: int, channels: slice, method: str, **options: object) -> Tensor:
        """These channels of a content's features after stage ``depth``, matched to every style and averaged."""
        if method == "efdm" and len(self.features) > 1 and options.keys() <= {"ties", "generator"}:
            # what has rank i gets the i-th value of every style: their average can be made first, and one match is enough
            return interpolate_styles(
                x, [self._average(depth, x.shape[2:].numel(), channels)], [1], method=method, **options
            )
        styles = [_some(style[depth], channels) for style in self.features]
        return interpolate_styles(x, styles, self.weights, method=method, **options)

    def _average(self, depth: int, n: int, channels: slice) -> PreparedStyle:
        if channels == slice(None) and (depth, n) in self._averages:
            return self._averages[depth, n]
        styles = [_some(style[depth], channels).for_length(n, "interpolate") for style in self.features]
        average = PreparedStyle(sum((w * s for w, s in zip(self.weights, styles, strict=True)), torch.zeros(())))
        if channels == slice(None):  # a share of the channels belongs to a picture too large to keep this for
            self._averages[depth, n] = average
        return average


def _some(style: PreparedStyle, channels: slice) -> PreparedStyle:
    return style if channels == slice(None) else PreparedStyle(style.values[:, channels], style.mask)


def shares(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Weights divided by their sum; equal ones if there are none."""
    if weights is None:
        weights = [1.0] * count
    given = [float(w) for w in weights]
    if len(given) != count or not count:
        raise ValueError(f"{count} styles and {len(given)} weights; give one weight for each of at least one style")
    if not all(0 <= w < float("inf") for w in given) or sum(given) <= 0:
        raise ValueError(f"weights {given} must be numbers from 0 up, and not all zero")
    return tuple(w / sum(given) for w in given)


# --- masks -----------------------------------------------------------------------------------------------------------


def coverage(mask: Tensor, size: tuple[int, int], step: int) -> Tensor:
    """How much of each cell of ``step`` pixels a mask ``(h, w)`` covers, in a picture of ``size``."""
    share = (
        F.interpolate(mask[None, None].float(), size=size, mode="area") if mask.shape != size else mask[None, None].float()
    )
    missing = (0, -size[1] % step, 0, -size[0] % step)  # cells at the edge count what is inside
    total = F.avg_pool2d(F.pad(torch.ones_like(share), missing), step)
    return (F.avg_pool2d(F.pad(share, missing), step) / total)[0, 0]


def cells(masks: Sequence[Tensor], size: tuple[int, int], step: int) -> list[Tensor]:
    """Masks on the cells of a feature map. A cell belongs to what covers most of it, where several masks overlap to the
    last of them."""
    below = torch.stack([coverage(mask, size, step) for mask in on_top(masks)])
    rest = (1 - below.sum(0)).clamp(min=0)
    owner = torch.cat([below, rest[None]]).argmax(0)
    return [owner == i for i in range(len(masks))]


def on_top(masks: Sequence[Tensor]) -> list[Tensor]:
    """The masks without what a later one covers."""
    seen = torch.zeros_like(masks[0])
    visible = []
    for mask in reversed(masks):
        visible.append(mask & ~seen)
        seen = seen | mask
    return visible[::-1]


def style_cells(mask: Tensor, size: tuple[int, int], step: int) -> Tensor:
    """A style's mask on a feature map: cells at least half covered, or else whatever is touched."""
    share = coverage(mask, size, step)
    return share >= 0.5 if (share >= 0.5).any() else share > 0
