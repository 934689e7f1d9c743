"""Augmentation of whole batches on their device: random crops, flips and colours, from uint8 to normalized floats.

Nothing is read back and shapes do not depend on random draws, so a CUDA graph can capture everything. (kornia and
torchvision read random parameters back, or draw them on the host.) Each picture is resampled once: enlarging, cropping and
flipping are one window of the stored picture.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD
from efdm.nn.draw import Generator, uniform

Augmentation = Callable[[Tensor, int, Generator], Tensor]


def augmented(images: Tensor, name: str, size: int, generator: Generator = None) -> Tensor:
    """Return augmented training pictures: uint8 ``(b, 3, side, side)`` to normalized float32 ``(b, 3, size, size)``.

    ``name`` is a row of `AUGMENTATIONS`. The result is in channels_last format. Random numbers come from ``generator``,
    which must be on the device of the images.
    """
    _check(images)
    return AUGMENTATIONS[name](images, size, generator)


def prepared(images: Tensor, size: int) -> Tensor:
    """Return test pictures: resized to ``size`` and normalized."""
    _check(images)
    side = images.shape[-1]
    if side == size:
        return _normalized(images.float())
    zero = torch.zeros(len(images), device=images.device)
    return _normalized(_resampled(images, Windows(zero, zero, zero + side, zero + side), size))


def paper(images: Tensor, size: int, generator: Generator) -> Tensor:
    """As in the paper: with probability 0.5 enlarge by an eighth (224 to 252) and crop at random; horizontal flip."""
    side, large = images.shape[-1], size + size // 8
    chance, down, right, mirror = uniform(4, len(images), device=images.device, generator=generator)
    step = side / large  # one pixel of the enlarged picture, in stored pixels
    room = large - size + 1  # crops start at whole pixels of the enlarged picture
    enlarged = chance < 0.5
    tops, lefts = (torch.where(enlarged, (u * room).floor() * step, 0.0) for u in (down, right))
    extent = torch.where(enlarged, size * step, float(side))
    return _normalized(_resampled(images, Windows(tops, lefts, extent, extent), size, mirror < 0.5))


def domainbed(images: Tensor, size: int, generator: Generator) -> Tensor:
    """DomainBed's augmentation: random resized crop (0.7 to 1 of the area), horizontal flip, colour jitter of 0.3, grayscale
    (p = 0.1).

    Differences from torchvision: the jitter's operations have a fixed order, and crops may start between pixels.
    """
    device, batch = images.device, len(images)
    windows = _windows_of_area(batch, images.shape[-1], (0.7, 1.0), device, generator)
    mirror, gray, *amounts = uniform(6, batch, device=device, generator=generator)
    pixels = _resampled(images, windows, size, mirror < 0.5) / 255
    for change, u in zip((brightness, contrast, saturation), amounts, strict=False):
        pixels = change(pixels, 0.7 + 0.6 * u)
    pixels = hue(pixels, 0.6 * amounts[3] - 0.3)
    pixels = torch.where((gray < 0.1)[:, None, None, None], _gray(pixels), pixels)
    return _normalized(pixels * 255)


def digits(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Shift by up to a sixteenth, in whole pixels, repeating the edge. No flip: a flipped digit may be another digit."""
    side = images.shape[-1]
    most = side // 16
    tops, lefts = (uniform(2, len(images), device=images.device, generator=generator) * (2 * most + 1)).floor() - most
    whole = torch.full_like(tops, float(side))
    return _normalized(_resampled(images, Windows(tops, lefts, whole, whole), size))


AUGMENTATIONS: Mapping[str, Augmentation] = MappingProxyType({
    "paper": paper, "domainbed": domainbed, "digits": digits, "none": lambda images, size, _: prepared(images, size),
})  # fmt: skip


class Windows(NamedTuple):
    """A window of each stored picture in pixels, ``(b,)`` each. Windows may start between pixels and extend outside."""

    tops: Tensor
    lefts: Tensor
    heights: Tensor
    widths: Tensor


def _windows_of_area(
    batch: int, side: int, area: tuple[float, float], device: torch.device, generator: Generator
) -> Windows:
    """Return random windows with a share of the area within ``area`` and aspect ratios from 3:4 to 4:3.

    Like torchvision's RandomResizedCrop: the first of ten tries that fits, otherwise the whole picture.
    """
    u = uniform(2, 10, batch, device=device, generator=generator)
    share, ratio = area[0] + (area[1] - area[0]) * u[0], torch.exp((2 * u[1] - 1) * math.log(4 / 3))
    sides = torch.stack([(share / ratio).sqrt(), (share * ratio).sqrt()])  # (2, 10, b), relative to the side
    fits = (sides <= 1).all(0)
    first = fits.to(torch.uint8).argmax(0).expand(2, 1, batch)
    heights, widths = torch.where(fits.any(0), sides.gather(1, first)[:, 0], 1.0) * side
    down, right = uniform(2, batch, device=device, generator=generator)
    return Windows(down * (side - heights), right * (side - widths), heights, widths)


def _resampled(images: Tensor, windows: Windows, size: int, flipped: Tensor | None = None) -> Tensor:
    """Return the windows resampled to ``size`` by bilinear interpolation (``align_corners=False``), 0 to 255.

    No antialiasing: data sets are stored at about the size at which they are used.
    """
    side = images.shape[-1]
    # Padded to a power of two: grid_sample's conversion between pixels and [-1, 1] is then exact, and a window that needs
    # no interpolation gets none. Interpolation by matrix products would be faster but rounds to 11 bits (TF32).
    canvas = 1 << (side - 1).bit_length()
    pixels = F.pad(images, (0, canvas - side, 0, canvas - side)).float()
    tops, lefts, heights, widths = windows
    steps = torch.arange(size, device=images.device, dtype=torch.float32)
    steps_x = steps if flipped is None else torch.where(flipped[:, None], size - 1 - steps, steps)
    rows = _centres(tops, heights, steps, size, side, canvas)
    columns = _centres(lefts, widths, steps_x, size, side, canvas)
    grid = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), -1)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _centres(start: Tensor, extent: Tensor, steps: Tensor, size: int, side: int, canvas: int) -> Tensor:
    """Return the centres of the new pixels for grid_sample, ``(b, size)``, clamped to the picture."""
    at = (start[:, None] + (steps + 0.5) * (extent / size)[:, None] - 0.5).clamp(0, side - 1)
    return (2 * at + 1) / canvas - 1


# colours: pixels from 0 to 1, one amount per picture


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    return (pixels * factor[:, None, None, None]).clamp(0, 1)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    return _towards(_gray(pixels).mean((1, 2, 3), keepdim=True), pixels, factor)


def saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    return _towards(_gray(pixels), pixels, factor)


def hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue by a fraction of the circle, keeping value and saturation (HSV)."""
    r, g, b = pixels.unbind(1)
    high, low = pixels.amax(1), pixels.amin(1)
    spread = high - low
    over = torch.where(spread > 0, spread, 1.0)
    sixths = torch.where(high == r, (g - b) / over, torch.where(high == g, (b - r) / over + 2, (r - g) / over + 4))
    # along the hue circle a channel is at its minimum for two sixths, at its maximum for two sixths, and linear in between
    turned = (sixths + 6 * turn[:, None, None])[:, None] + _constant((5.0, 3.0, 1.0), pixels.device)
    k = turned.remainder(6)
    return high[:, None] - spread[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


def _towards(ground: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    return (ground + (pixels - ground) * factor[:, None, None, None]).clamp(0, 1)


def _gray(pixels: Tensor) -> Tensor:
    r, g, b = pixels.unbind(1)
    return (0.2989 * r + 0.587 * g + 0.114 * b)[:, None]  # torchvision's weights


def _normalized(pixels: Tensor) -> Tensor:
    """Return pixels (0 to 255) normalized by ImageNet's mean and standard deviation, in channels_last format."""
    scale = _constant(tuple(1 / (255 * s) for s in IMAGENET_STD), pixels.device)
    shift = _constant(tuple(-m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)), pixels.device)
    out = torch.empty_like(pixels, memory_format=torch.channels_last)
    return torch.addcmul(shift, pixels, scale, out=out)


@functools.cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return one number per channel as a tensor. Cached, because a CUDA graph cannot capture copies from the host."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)


def _check(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise ValueError(f"images must be uint8 (b, 3, side, side), got {images.dtype} {tuple(images.shape)}")
