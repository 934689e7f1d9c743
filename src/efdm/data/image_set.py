"""Pictures in memory for training, and random crops of them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from efdm.data.folders import Skipped, Source, find_pictures
from efdm.data.images import PictureError, StrPath, centre_crop, decode, on_white, resize, short_side_size, to_uint8
from efdm.data.memory import FEWER, Remedy, check_memory
from efdm.data.profiles import narrow
from efdm.progress import Progress, Report, ignore
from efdm.text import first_few, plural

Fit = Literal["stretch", "crop"]
MAX_ASPECT = 8  # resizing the short side of a longer strip to the crop size would make its long side huge
T = TypeVar("T", bound=Any)  # with a name


class Crops(NamedTuple):
    """Square crops: index of the picture, top row, left column and whether to mirror, each ``(b,)``."""

    indices: Tensor
    tops: Tensor
    lefts: Tensor
    flips: Tensor


@dataclass(frozen=True)
class ImageSet:
    """Pictures in memory. ``pixels`` uint8 ``(3, total)`` holds one after another, without padding.

    ``starts`` and ``sizes`` (height, width) locate each picture. ``smallest`` is the shortest side of all, as a number,
    because reading it from a tensor would synchronise the GPU. ``skipped`` lists (name, reason) of unreadable pictures.
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


def digest(values: object) -> str:
    """Return the SHA-256 of JSON-serializable values as hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_rows(data: Any, numbers: Sequence[str]) -> None:
    """Raise unless the images of a set, and the fields ``numbers``, have one row for each of its names."""
    n = len(data.names)
    expected: Any = {"images": (torch.uint8, (n, 3, *data.images.shape[-2:])), **dict.fromkeys(numbers, (torch.int64, (n,)))}
    for what, (dtype, shape) in expected.items():
        values = getattr(data, what)
        if (values.dtype, tuple(values.shape)) != (dtype, shape):
            raise ValueError(f"{what} are {values.dtype} {tuple(values.shape)}, expected {dtype} {shape} for {n} names")


def read_all(
    items: Sequence[T], read: Callable[[T], Tensor], workers: int | None, progress: Report, skipped: Skipped
) -> Iterator[tuple[T, Tensor]]:
    """Yield each item with ``read(item)``, in order. If it raises `PictureError`, append (name, reason) to ``skipped``."""

    def attempt(item: T) -> Tensor | PictureError:
        try:
            return read(item)
        except PictureError as error:
            return error

    # if the caller stops, dropping the iterator of results cancels the items that have not started
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for done, (item, result) in enumerate(zip(items, pool.map(attempt, items), strict=True), 1):
            if isinstance(result, Tensor):
                yield item, result
            else:
                skipped.append((item.name, str(result)))
            progress(Progress("reading pictures", done, len(items)))
    if len(skipped) == len(items):
        raise PictureError(f"none of {len(items)} pictures could be read: {first_few([reason for _, reason in skipped])}")


def empty_images(count: int, size: tuple[int, int], *, remedy: Remedy = FEWER) -> Tensor:
    """Return an uninitialized tensor ``(count, 3, *size)``. Raise `SettingError` if it does not fit in memory."""
    height, width = size
    check_memory(3 * count * height * width, f"{plural(count, 'picture')} of {height} x {width} pixels", remedy=remedy)
    return torch.empty(count, 3, height, width, dtype=torch.uint8)


def read_images(
    items: Sequence[T],
    size: tuple[int, int],
    fit: Fit,
    workers: int | None,
    progress: Report,
    *,
    remedy: Remedy = FEWER,
) -> tuple[Tensor, list[T], Skipped]:
    """Return the pictures of ``items`` ``(n, 3, *size)``, their items, and the unreadable ones; see `empty_images`."""
    images, found, skipped = empty_images(len(items), size, remedy=remedy), list[T](), Skipped()
    for item, image in read_all(items, functools.partial(read_fitted, size=size, fit=fit), workers, progress, skipped):
        images[len(found)] = image
        found.append(item)
    return images[: len(found)], found, skipped


def read_fitted(item: Any, size: tuple[int, int], fit: Fit) -> Tensor:
    """Read the picture of an item with a source, as uint8 ``(3, *size)``."""
    return fitted(read_rgb(item.source, max(size)), size, fit)


def fitted(image: Tensor, size: tuple[int, int], fit: Fit) -> Tensor:
    """Resize ``(..., h, w)`` to ``size``, stretched, or cropped to the aspect ratio of ``size`` first."""
    return resize(centre_crop(image, *size) if fit == "crop" else image, size)


def read_rgb(source: Source, near: int | None) -> Tensor:
    """Read a picture as uint8 ``(3, h, w)`` over white. See `decode` for ``near``."""
    with source.open() as file:
        pixels = narrow(decode(file, str(source), near=near))
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    return image if len(image) == 3 else to_uint8(on_white(image[:3] / 255, image[3:] / 255))


def _load(source: Source, short_side: int | None, min_side: int) -> Tensor:
    image = read_rgb(source, short_side)
    height, width = image.shape[1:]
    if max(height, width) > MAX_ASPECT * min(height, width):
        raise PictureError(f"{source} is a strip of {height} x {width} pixels; crop it")
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
    """Cut squares ``(b, 3, size, size)`` from the pictures on their device, without synchronising it."""
    if not 1 <= size <= images.smallest:
        raise ValueError(f"crops of {size} pixels do not fit pictures of {images.smallest}; load them with min_side={size}")
    indices, tops, lefts, flips = crops
    steps = torch.arange(size, device=images.pixels.device)
    rows = tops[:, None] + steps
    columns = lefts[:, None] + torch.where(flips[:, None], size - 1 - steps, steps)
    widths = images.sizes[indices, 1]
    at = images.starts[indices, None, None] + rows[:, :, None] * widths[:, None, None] + columns[:, None, :]
    return images.pixels[:, at].transpose(0, 1).contiguous()
