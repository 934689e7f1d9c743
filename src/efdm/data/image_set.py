"""A set of pictures in memory, for training, and random crops of them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.data.folders import Source, find_pictures
from efdm.data.images import MAX_PIXELS, PictureError, StrPath, decode, on_white, read_error, resize, short_side_size
from efdm.data.profiles import narrow
from efdm.progress import Progress, Report, ignore

READING = "reading pictures"  # label of the progress reports
MAX_ASPECT = 8  # a longer strip would grow without bound when its short side is made large enough for a crop


class Crops(NamedTuple):
    """Which squares to cut: picture, first row, first column, and whether to mirror; ``(b,)`` each."""

    indices: Tensor
    tops: Tensor
    lefts: Tensor
    flips: Tensor


@dataclass(frozen=True)
class Pack:
    """All pictures of a set behind one another, for a GPU: ``pixels`` ``(3, all)``, where each starts, and its size.

    No canvas of one size for all: nothing is cropped away, and nothing is stored beside the pictures.
    """

    pixels: Tensor
    starts: Tensor
    sizes: Tensor
    smallest: int  # short side of all; kept here because asking a GPU for it would wait for the GPU

    def __len__(self) -> int:
        return len(self.starts)

    def to(self, device: torch.device | str) -> Pack:
        return Pack(self.pixels.to(device), self.starts.to(device), self.sizes.to(device), self.smallest)


@dataclass(frozen=True)
class ImageSet:
    """Pictures in memory, uint8 ``(3, h, w)`` each, and what had to be left out: ``skipped`` of (name, reason)."""

    images: list[Tensor]
    names: list[str]
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def load(
        cls,
        source: StrPath | Sequence[Source],
        *,
        short_side: int | None = None,
        min_side: int = 256,
        workers: int | None = None,
        progress: Report = ignore,
        max_pixels: int = MAX_PIXELS,
    ) -> ImageSet:
        """Decode all pictures, ``workers`` at a time (default: one a core).

        The short side becomes ``short_side`` if given; otherwise only pictures smaller than ``min_side`` are made larger,
        so that crops up to that size fit. Transparent parts are laid on white. Damaged pictures are skipped.
        """
        sources = find_pictures(source) if isinstance(source, str | os.PathLike) else list(source)
        one = functools.partial(_load, short_side=short_side, min_side=min_side, max_pixels=max_pixels)
        images, names, skipped = [], [], []
        # leaving by an exception drops the iterator of results, which cancels what has not begun
        with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
            for done, (item, result) in enumerate(zip(sources, pool.map(one, sources), strict=True), 1):
                if isinstance(result, Tensor):
                    images.append(result)
                    names.append(item.name)
                else:
                    skipped.append((item.name, str(result)))
                progress(Progress(READING, done, len(sources)))
        if not images:
            first = f"; the first: {skipped[0][1]}" if skipped else ""
            raise PictureError(f"none of {len(sources)} pictures could be read{first}")
        return cls(images, names, skipped)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index]

    @property
    def sizes(self) -> Tensor:
        """``(N, 2)`` heights and widths."""
        return torch.tensor([image.shape[1:] for image in self.images])

    def fingerprint(self) -> str:
        """Return a SHA-256 of names and sizes."""
        return digest([self.names, self.sizes.tolist()])

    def crops(self, indices: Tensor, size: int, generator: torch.Generator | None = None) -> Tensor:
        """A random square of each picture named, half of them mirrored: uint8 ``(b, 3, size, size)``."""
        sizes = self.sizes
        _check_size(size, int(sizes.min()))
        cuts = zip(*(values.tolist() for values in draw_crops(sizes, indices, size, generator)), strict=True)
        squares = ((self.images[i][:, top : top + size, left : left + size], flip) for i, top, left, flip in cuts)
        return torch.stack([square.flip(-1) if flip else square for square, flip in squares])

    def pack(self) -> Pack:
        """The set as one tensor; `Pack.to` brings it to a GPU."""
        sizes = self.sizes
        areas = sizes.prod(dim=1)
        starts = areas.cumsum(0) - areas
        pixels = torch.empty(3, int(areas.sum()), dtype=torch.uint8)
        for image, start, area in zip(self.images, starts.tolist(), areas.tolist(), strict=True):
            pixels[:, start : start + area] = image.reshape(3, -1)
        return Pack(pixels, starts, sizes, int(sizes.min()))


def digest(values: object) -> str:
    """Return the SHA-256 of values that JSON can hold, as hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _load(source: Source, short_side: int | None, min_side: int, max_pixels: int) -> Tensor | PictureError:
    image = bytes_of(source, source.name, near=short_side, max_pixels=max_pixels)
    if isinstance(image, PictureError):
        return image
    height, width = image.shape[1:]
    if max(height, width) > MAX_ASPECT * min(height, width):
        return PictureError(f"{source.name} is a strip of {height} x {width} pixels; crop it to a more usual shape")
    short = short_side or max(min_side, min(height, width))
    return resize(image, short_side_size(height, width, short)).contiguous()


def bytes_of(source: Source, name: str, *, near: int | None, max_pixels: int = MAX_PIXELS) -> Tensor | PictureError:
    """A picture as uint8 ``(3, h, w)``, transparent parts on white, ``near`` as in `decode`. What is wrong with it, where it
    is called ``name``, is returned and not raised: many are read at once."""
    try:
        with source.open() as file:
            pixels = narrow(decode(file, name, max_pixels=max_pixels, near=near))
    except PictureError as error:
        return error
    except OSError as error:
        return read_error(error, source.path)
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    if len(image) == 4:
        image = (on_white(image[:3] / 255, image[3:] / 255) * 255).round().to(torch.uint8)
    return image


# --- crops -----------------------------------------------------------------------------------------------------------


def draw_crops(sizes: Tensor, indices: Tensor, size: int, generator: torch.Generator | None = None) -> Crops:
    """Uniformly random places of squares in pictures of these ``sizes`` ``(N, 2)``, on the generator's device.

    All pictures must be at least ``size`` high and wide; `take_crops` checks that.
    """
    device = sizes.device if generator is None else generator.device
    indices = indices.to(device)
    u = torch.rand(3, len(indices), device=device, generator=generator)
    room = (sizes.to(device)[indices] - size + 1).clamp(min=1)
    # u is at most 1 - 2^-24, and times a whole number that stays below it even in float32
    tops, lefts = (u[:2] * room.T).long()
    return Crops(indices, tops, lefts, u[2] < 0.5)


def take_crops(pack: Pack, crops: Crops, size: int) -> Tensor:
    """Cut squares ``(b, 3, size, size)`` out of a pack, on its device and without waiting for it."""
    _check_size(size, pack.smallest)
    indices, tops, lefts, flips = crops
    steps = torch.arange(size, device=pack.pixels.device)
    rows = tops[:, None] + steps
    columns = lefts[:, None] + torch.where(flips[:, None], size - 1 - steps, steps)
    widths = pack.sizes[indices, 1]
    at = pack.starts[indices, None, None] + rows[:, :, None] * widths[:, None, None] + columns[:, None, :]
    return pack.pixels[:, at].transpose(0, 1).contiguous()


def _check_size(size: int, smallest: int) -> None:
    if not 1 <= size <= smallest:
        raise ValueError(f"crops of {size} pixels do not fit pictures of {smallest}; load the set with min_side={size}")
