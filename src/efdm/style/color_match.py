"""Exact matching of the colours of pictures.

Pictures of 8 or 16 bits are matched by counting levels (`efdm.style.levels`), floats by sorting (`efdm.ops.efdm`). In RGB,
every channel of the result contains each level as often as the reference does; if the numbers of pixels differ, in
proportion, rounded to whole pixels. Lab and luminance are matched at 16 bits per channel and then converted back to RGB,
which rounds, and clips colours outside the gamut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, index
from typing import Any

import torch
from torch import Tensor

from efdm.errors import SettingError
from efdm.ops import PreparedStyle, efdm, match_jointly
from efdm.style.color import SPACES
from efdm.style.levels import BINS, TIES, Curve, add_counts, make_curves, map_bins, ordered_bins, to_bins
from efdm.style.options import Method, check_match
from efdm.style.pictures import AnyPicture
from efdm.style.planes import Planes, open_planes

SPACE_LEVELS = 65536  # levels per channel of Lab and of luminance
KEY_LEVELS = 256  # levels to which floats are rounded in order to break ties
ROTATIONS = 20  # in a joint match


@dataclass(frozen=True, eq=False)
class Reference:
    """The distribution of the colours of one or several pictures. Created by `prepare_reference`.

    ``counts`` ``(c, levels)`` is the histogram of every channel of integer pictures. Histograms add up, so ``+`` merges such
    references exactly, without their pixels. References of float pictures keep the sorted ``values`` ``(c, m)`` of all
    pixels, and references for joint matching keep the pixels.
    """

    space: str
    method: Method
    counts: Tensor | None
    values: Tensor | None = None

    def __add__(self, other: Reference) -> Reference:
        if (self.space, self.method) != (other.space, other.method):
            kinds = [f"space={reference.space!r}, method={reference.method!r}" for reference in (self, other)]
            raise SettingError(f"cannot merge a reference of {kinds[0]} with one of {kinds[1]}", "space")
        if self.space == "rgb":
            check_fit(self.channels, other)
        if self.method == "channels" and self.counts is not None and other.counts is not None:
            levels = max(self.counts.shape[1], other.counts.shape[1])
            return Reference(self.space, self.method, self.at(levels) + other.at(levels))
        both = torch.cat([self.floats(), other.floats()], 1)
        return Reference(self.space, self.method, None, both if self.method == "joint" else both.sort(1).values)

    @property
    def channels(self) -> int:
        return len(self.counts if self.values is None else self.values)  # type: ignore[arg-type]

    def to(self, device: torch.device | str) -> Reference:
        """Move the reference to a device."""
        moved = {name: x.to(device) for name in ("counts", "values") if (x := getattr(self, name)) is not None}
        return replace(self, **moved)

    def at(self, levels: int) -> Tensor:
        """Return the counts ``(c, levels)``, converted to this number of levels."""
        if self.counts is None:
            whole = (self.floats().clamp(0, 1) * (levels - 1)).round().long()
            return add_counts(whole.new_zeros(len(whole), levels), whole)
        have = self.counts.shape[1]
        if have == levels:
            return self.counts
        index = torch.arange(have, device=self.counts.device)
        index = index * 257 if levels > have else (index + 128) // 257  # 16 bits are 257 times 8 bits
        return torch.zeros(self.channels, levels, dtype=torch.int64, device=index.device).index_add_(1, index, self.counts)

    def floats(self) -> Tensor:
        """Return all values ``(c, m)`` as floats; levels are divided by the largest level."""
        if self.values is not None:
            return self.values
        assert self.counts is not None
        index = torch.arange(self.counts.shape[1], device=self.counts.device)
        rows = [index.repeat_interleave(row) for row in self.counts]
        return torch.stack(rows).float() / (self.counts.shape[1] - 1)


def prepare_reference(
    pictures: AnyPicture | Sequence[AnyPicture],
    *,
    space: str = "rgb",
    method: Method = "channels",
    masks: Any = None,
    nodata: float | None = None,
    device: Any = "cpu",
) -> Reference:
    """Return the pooled distribution of one picture or of a list of pictures, to match many contents with it.

    ``masks`` is a mask ``(h, w)``, or a list with a mask or None for every picture. For the other arguments, see
    `match_picture`.

    >>> from efdm.data.embedded import photos
    >>> from efdm.style import prepare_reference
    >>> reference = prepare_reference([photos()["cat"], photos()["coffee"]])
    >>> reference.counts.shape
    torch.Size([3, 256])
    """
    check_match(space, method)
    sources: list[Any] = [*pictures] if isinstance(pictures, list | tuple) else [pictures]
    masks = masks if isinstance(pictures, list | tuple) and masks is not None else [masks] * len(sources)
    if not sources:
        raise SettingError("the list of references is empty; pass at least one picture", "reference")
    if len(masks) != len(sources):
        raise SettingError(f"expected a mask or None for each of {len(sources)} references, got {len(masks)}", "masks")
    opened = (open_planes(picture, mask, nodata, device)[0] for picture, mask in zip(sources, masks, strict=True))
    reference = reduce(add, (_reference(planes, space, method) for planes in opened))
    if not (reference.values.numel() if reference.counts is None else reference.counts.any()):  # type: ignore[union-attr]
        problem = "the reference has no pixels: all are masked, transparent or without data"
        raise SettingError(f"{problem}; select other pixels", "reference_mask")
    return reference


def _reference(planes: Planes, space: str, method: Method) -> Reference:
    if space != "rgb":
        _check_rgb(len(planes.values), space)
    if method == "joint":
        return Reference(space, method, None, SPACES[space].forward(planes.pick(planes.unit())))
    values, levels = planes.pick(planes.values), planes.levels
    if space != "rgb":
        unit = SPACES[space].forward(planes.pick(planes.unit()))
        values, levels = (unit.clamp(0, 1) * (SPACE_LEVELS - 1)).round().int(), SPACE_LEVELS
    elif not levels:
        return Reference(space, method, None, values.sort(1).values)
    return Reference(space, method, add_counts(values.new_zeros(len(values), levels, dtype=torch.int64), values))


def match_picture(
    content: AnyPicture,
    reference: AnyPicture | Sequence[AnyPicture] | Reference,
    *,
    space: str = "rgb",
    method: Method = "channels",
    strength: float = 1.0,
    ties: str = "smooth",
    tolerance: float = 0.0,
    mask: Any = None,
    reference_mask: Any = None,
    nodata: float | None = None,
    seed: int = 0,
    device: Any = "cpu",
) -> Any:
    """Return the content with the colours of the reference, in the type of the content.

    Args:
        content: A path, bytes, a PIL image, a `Picture`, a tensor ``(c, h, w)`` of uint8 or floats, or an array ``(h, w)``
            or ``(h, w, c)`` of uint8, uint16 or floats. Alpha is kept, and transparent pixels are ignored.
        reference: A picture of any of these types and of any size, a list of pictures, whose pixels are pooled, or a
            `Reference`, whose space and method take precedence. Depths are converted; floats count as values in [0, 1].
        space: ``"rgb"``, ``"lab"`` or ``"luminance"`` (only the brightness changes). All but ``"rgb"`` need three channels.
        method: ``"channels"``: every channel is matched exactly. ``"joint"``: the joint distribution of the channels is
            approached by matching along rotated axes (Pitié et al., 2007), and in RGB the channels end up exact.
        strength: From 0 (the content) to 1 (the match).
        ties: Order of equal values, of which integer pictures have many. ``"smooth"``: by the mean of the neighbourhood,
            mixed with dither, so that skies do not band; ``"dither"``: by dither alone; ``"position"``: by row and column.
        tolerance: Standard deviations within which values of the content share the mean of their match. 0 is exact; 0.1
            does not amplify noise and compression blocks, which an exact match would spread over all levels in plain
            areas. Not for joint matches.
        mask, reference_mask: ``(h, w)``, nonzero where pixels are changed, and where the colours are taken from. For a list
            of references, a list of masks.
        nodata: Value that marks pixels without data in content and reference. They are unchanged and ignored, as are
            values that are not finite.
        seed: Seed of the dither and of the rotations.
        device: Where to compute, such as ``"cuda"``.

    >>> import numpy as np
    >>> from efdm import match_picture
    >>> x, y = np.array([[10, 20, 20, 40]], np.uint8), np.array([[5, 6, 7, 200]], np.uint8)
    >>> match_picture(x, y, ties="position")
    array([[  5,   6,   7, 200]], dtype=uint8)
    """
    if isinstance(reference, Reference):
        space, method = reference.space, reference.method
    check_match(space, method, strength, ties, tolerance)
    planes, convert = open_planes(content, mask, nodata, device)
    if not isinstance(reference, Reference):
        reference = prepare_reference(
            reference, space=space, method=method, masks=reference_mask, nodata=nodata, device=device
        )
    check_fit(len(planes.values), reference)
    if not strength or not planes.pick(planes.values).numel():
        return convert(planes.values)
    reference = reference.to(planes.values.device)
    if reference.method == "joint":
        values = replace_valid(planes, _match_joint(planes, reference, ties, seed), strength)
    elif reference.space == "rgb" and not planes.levels:
        values = replace_valid(planes, _match_floats(planes, reference, ties, seed, tolerance), strength)
    else:
        bins = content_bins(planes, reference.space, ties, seed)
        curves = count_chunks([bins], planes.levels, reference, tolerance)
        values = match_chunk(curves, planes, bins, reference.space, strength)
    return convert(values)


def count_chunks(chunks: Iterable[Tensor], levels: int, reference: Reference, tolerance: float) -> list[Curve]:
    """Return the curves that match several chunks as one distribution. ``chunks`` are the bins of each."""
    target = reference.at(levels if reference.space == "rgb" else SPACE_LEVELS)
    counts = target.new_zeros(len(target), BINS)
    for bins in chunks:
        add_counts(counts, bins)
    return make_curves(counts, target, tolerance)


def match_chunk(curves: Sequence[Curve], planes: Planes, bins: Tensor, space: str, strength: float) -> Tensor:
    """Return the matched values of a chunk. Chunks must be passed in the order in which they were counted."""
    return replace_valid(planes, from_space(map_bins(bins, curves), planes, space), strength)


def ordered_unit(planes: Planes, ties: str, seed: int, top: int = 0) -> Tensor:
    """Return the values ``(c, h, w)`` in [0, 1), with equal levels in the order of ``ties``. Floats are unchanged."""
    return (planes.values + TIES[ties](planes.values, seed, top)).div_(planes.levels) if planes.levels else planes.values


def content_bins(
    planes: Planes, space: str, ties: str, seed: int, top: int = 0, rows: tuple[int, int | None] = (0, None)
) -> Tensor:
    """Return the bins ``(c, n)`` of the valid pixels in a space, with equal levels in the order of ``ties``.

    ``planes`` start at row ``top`` of the picture. ``rows = (first, end)`` restricts the result to ``planes[first:end]``.
    """
    inside, part = planes.crop(*rows), slice(*rows)
    if space == "rgb":
        return inside.pick(ordered_bins(planes.values, planes.levels, ties, seed, top)[:, part])
    return to_bins(SPACES[space].forward(inside.pick(ordered_unit(planes, ties, seed, top)[:, part])))


def from_space(matched: Tensor, planes: Planes, space: str) -> Tensor:
    """Return matched levels ``(c, n)`` of a space, or floats in [0, 1], as values of the picture."""
    if space == "rgb":
        return matched
    unit = matched if matched.is_floating_point() else matched / (SPACE_LEVELS - 1)
    rgb = SPACES[space].back(unit, planes.pick(planes.unit()))
    return rgb * (planes.levels - 1) if planes.levels else rgb


def replace_valid(planes: Planes, matched: Tensor, strength: float) -> Tensor:
    """Return the values of a picture with the valid ones blended with their match, levels rounded to nearest."""
    if strength < 1:
        matched = torch.lerp(planes.pick(planes.values).to(planes.unit()), matched.to(planes.unit()), strength)
    if planes.levels and matched.is_floating_point():
        matched = matched.round().clamp(0, planes.levels - 1)
    if planes.valid is None:
        return matched.to(planes.values).view_as(planes.values)
    out = planes.values.clone()
    out[:, planes.valid] = matched.to(out)
    return out


def _match_floats(planes: Planes, reference: Reference, ties: str, seed: int, tolerance: float) -> Tensor:
    """Match floats. Equal values are ordered by their positions in the levels of an 8-bit picture.

    They are sorted by position first; the sort by value that follows is stable.
    """
    x = planes.pick(planes.values)
    style = PreparedStyle(reference.floats().to(x)[None])
    if tolerance:
        return efdm(x[None], style, tolerance=tolerance)[0]
    low, high = x.amin(1)[:, None, None], x.amax(1)[:, None, None]
    levels = ((planes.values - low) / (high - low) * (KEY_LEVELS - 1)).nan_to_num(0, 0, 0).round().int()
    order = planes.pick(TIES[ties](levels, seed, 0)).argsort(dim=1, stable=True)
    return torch.empty_like(x).scatter_(1, order, efdm(x.gather(1, order)[None], style, ties="stable")[0])


def _match_joint(planes: Planes, reference: Reference, ties: str, seed: int) -> Tensor:
    x = SPACES[reference.space].forward(planes.pick(ordered_unit(planes, ties, seed)))
    y = reference.floats().to(x)
    generator = torch.Generator().manual_seed(index(seed))
    matched = match_jointly(x[None], y[None], rotations=ROTATIONS, start="none", generator=generator)[0]
    if reference.space != "rgb" or not planes.levels:
        return from_space(matched, planes, reference.space)
    bins = to_bins(matched)
    return map_bins(bins, count_chunks([bins], planes.levels, reference, 0.0))


def check_fit(channels: int, reference: Reference) -> None:
    """Raise unless a picture with this number of channels can be matched with the reference."""
    if reference.space != "rgb":
        _check_rgb(channels, reference.space)
    elif channels != reference.channels:
        both = f"{channels} and {reference.channels}"
        raise SettingError(f"pictures with {both} channels cannot be matched; convert one of them", "reference")


def _check_rgb(channels: int, space: str) -> None:
    if channels != 3:
        raise SettingError(f"space={space!r} needs 3 channels, got {channels}; use rgb", "space")
