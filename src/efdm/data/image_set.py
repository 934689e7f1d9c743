"""Pictures in memory for training style transfer, and random crops of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.data.folders import Skipped, Source, find_pictures
from efdm.data.images import PictureError, StrPath, resize, short_side_size
from efdm.data.loading import digest, read_all, read_rgb
from efdm.progress import Report, ignore

MAX_ASPECT = 8  # resizing the short side of a longer strip to the crop size would make its long side huge


class Crops(NamedTuple):
    """Square crops: index of the picture, top row, left column and whether to mirror, each ``(b,)``."""

    indices: Tensor
    tops: Tensor
    lefts: Tensor
    flips: Tensor


@dataclass(frozen=True)
class ImageSet:
    """Pictures in memory. ``pixels`` uint8 ``(3, total)`` concatenates all pictures, without padding.

    ``starts`` and ``sizes`` (height, width) locate each picture. ``smallest`` is the shortest side of all, as a number,
    because reading it from a tensor would synchronize the GPU. ``skipped`` lists (name, reason) of unreadable pictures.
    """

    pixels: Tensor
    starts: Tensor
    sizes: Tensor
    smallest: int
    names: list[str]
    skipped: Skipped = field(default_factory=list)

    @classmethod
    def load(
        cls,
        source: StrPath | Sequence[Source],
        *,
        short_side: int | None = None,
        min_side: int = 256,
        workers: int | None = None,
        progress: Report = ignore,
    ) -> ImageSet:
        """Read all pictures with ``workers`` threads (default: one per core).

        With ``short_side``, pictures are resized to that short side. Otherwise only pictures smaller than ``min_side`` are
        enlarged, so crops up to that size fit. Transparent pixels are composited over white. Damaged pictures are skipped.
        """
        sources = find_pictures(source) if isinstance(source, str | os.PathLike) else list(source)
        read = functools.partial(_load, short_side=short_side, min_side=min_side)
        skipped: Skipped = []
        pairs = list(read_all(sources, read, workers, progress, skipped))
        sizes = torch.tensor([image.shape[1:] for _, image in pairs])
        starts = sizes.prod(1).cumsum(0) - sizes.prod(1)
        pixels = torch.cat([image.flatten(1) for _, image in pairs], 1)
        return cls(pixels, starts, sizes, int(sizes.min()), [item.name for item, _ in pairs], skipped)

    def __len__(self) -> int:
        return len(self.names)

    def to(self, device: torch.device | str) -> ImageSet:
        """Return the set with all tensors on a device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in ("pixels", "starts", "sizes")})

    @property
    def images(self) -> list[Tensor]:
        """The pictures as views ``(3, h, w)``."""
        parts = self.pixels.split(self.sizes.prod(1).tolist(), 1)
        return [part.unflatten(1, size) for part, size in zip(parts, self.sizes.tolist(), strict=True)]

    def fingerprint(self) -> str:
        """Return a SHA-256 of names and sizes."""
        return digest([self.names, self.sizes.tolist()])


def _load(source: Source, short_side: int | None, min_side: int) -> Tensor:
    image = read_rgb(source, short_side)
    height, width = image.shape[1:]
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise PictureError(f"{source} is a long, narrow strip of {height} x {width} pixels; crop it")
    short = short_side or max(min_side, min(height, width))
    return resize(image, short_side_size(height, width, short)).contiguous()


def draw_crops(sizes: Tensor, indices: Tensor, size: int, generator: torch.Generator | None = None) -> Crops:
    """Draw uniformly random squares, mirrored with probability 0.5, in pictures of ``sizes`` ``(N, 2)``.

    The draws are on the generator's device. `take_crops` raises if a picture is smaller than ``size``.
    """
    device = sizes.device if generator is None else generator.device
    indices = indices.to(device)
    u = torch.rand(3, len(indices), device=device, generator=generator)
    room = (sizes.to(device)[indices] - size + 1).clamp(min=1)
    # u is at most 1 - 2^-24, so the float32 product stays below ``room``
    tops, lefts = (u[:2] * room.T).long()
    return Crops(indices, tops, lefts, u[2] < 0.5)


def take_crops(images: ImageSet, crops: Crops, size: int) -> Tensor:
    """Cut squares ``(b, 3, size, size)`` from the pictures on their device, without synchronizing it."""
    if not 1 <= size <= images.smallest:
        raise ValueError(f"crops of {size} pixels do not fit pictures of {images.smallest}; load them with min_side={size}")
    indices, tops, lefts, flips = crops
    steps = torch.arange(size, device=images.pixels.device)
    rows = tops[:, None] + steps
    columns = lefts[:, None] + torch.where(flips[:, None], size - 1 - steps, steps)
    widths = images.sizes[indices, 1]
    at = images.starts[indices, None, None] + rows[:, :, None] * widths[:, None, None] + columns[:, None, :]
    return images.pixels[:, at].transpose(0, 1).contiguous()
