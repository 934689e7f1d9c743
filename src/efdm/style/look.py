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
    _averages: dict[int, PreparedStyle] = field(default_factory=dict, repr=False)  # by depth, for the last size alone

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
        kept = self._averages.get(depth)
        if channels == slice(None) and kept is not None and kept.shape[-1] == n:
            return kept
        styles = [_some(style[depth], channels).resampled(n, "interpolate") for style in self.features]
        average = PreparedStyle(sum((w * s for w, s in zip(self.weights, styles, strict=True)), torch.zeros(())))
        if channels == slice(None):  # a share of the channels belongs to a picture too large to keep this for
            self._averages[depth] = average
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
    if not all(w >= 0 for w in given) or not 0 < sum(given) < float("inf"):  # also for NaN
        raise ValueError(f"weights {given} must be numbers from 0 up, and not all zero, with a finite sum")
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
    last of them. A mask too thin for any cell gets all that it touches: what was asked for is never left out in silence."""
    below = torch.stack([coverage(mask, size, step) for mask in on_top(masks)])
    rest = (1 - below.sum(0)).clamp(min=0)
    owner = torch.cat([below, rest[None]]).argmax(0)
    thin = [i for i in range(len(masks)) if not (owner == i).any()]
    for i in thin:
        owner = torch.where(below[i] > 0, i, owner)
    found = [owner == i for i in range(len(masks))]
    for i, (own, covered) in enumerate(zip(found, below, strict=True)):
        if not own.any() and covered.any():  # what lies wholly under a later mask covers nothing
            raise ValueError(
                f"region {i + 1} of {len(masks)} shares all its cells of {step} pixels with others that are as small; "
                "join them, make them larger, or work at a larger size"
            )
    return found


def on_top(masks: Sequence[Tensor]) -> list[Tensor]:
    """The masks without what a later one covers."""
    seen = torch.zeros_like(masks[0])
    visible = []
    for mask in reversed(masks):
        visible.append(mask & ~seen)
        seen = seen | mask
    return visible[::-1]


def check_mask(mask: Tensor, picture: Tensor, role: str) -> None:
    """Whether this is ``(h, w)`` of bool, in the picture's size, with something selected."""
    if mask.dtype != torch.bool:
        raise TypeError(f"{role} mask has dtype {mask.dtype}; expected bool, for example mask > 0.5")
    if mask.shape != picture.shape[-2:]:
        expected = tuple(picture.shape[-2:])
        raise ValueError(f"{role} mask has shape {tuple(mask.shape)}, the {role} is {expected}; bring it to that size")
    if not mask.any():
        raise ValueError(f"{role} mask is empty; select at least one pixel, or leave the mask out")


def both(mask: Tensor | None, other: Tensor | None) -> Tensor | None:
    """What two masks select; none selects everything."""
    return mask if other is None else other if mask is None else mask & other


def style_cells(mask: Tensor, size: tuple[int, int], step: int) -> Tensor:
    """A style's mask on a feature map: cells at least half covered, or else whatever is touched."""
    share = coverage(mask, size, step)
    return share >= 0.5 if (share >= 0.5).any() else share > 0


def only_inside(output: Tensor, content: Tensor, masks: Sequence[Tensor | None]) -> Tensor:
    """The output where some mask is, the content elsewhere; a mask that is none is everywhere."""
    covered = [mask for mask in masks if mask is not None]
    if len(covered) < len(masks):
        return output
    return torch.where(torch.stack(covered).any(0), output, content)
