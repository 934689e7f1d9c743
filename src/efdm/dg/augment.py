"""From stored bytes to what a network takes: random views and colours, for a whole batch at once on its own device.

Nothing is read back and no shape depends on what is drawn, so that all of it can be part of a captured CUDA graph. Every
picture is resampled once: an enlargement, a crop and a mirror image are together one window of the stored picture.
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
from efdm.ops.choices import check_choice

Augmentation = Callable[[Tensor, int, Generator], Tensor]


def augmented(images: Tensor, name: str, size: int, generator: Generator = None) -> Tensor:
    """For training: bytes ``(b, 3, side, side)`` to float32 ``(b, 3, size, size)``, normalised as ImageNet's, channels_last.

    ``name`` is a row of `AUGMENTATIONS`. Everything random comes from ``generator``, which lives on the images' device.
    """
    check_choice("augmentation", name, AUGMENTATIONS)
    _check(images, size)
    return AUGMENTATIONS[name](images, size, generator)


def prepared(images: Tensor, size: int) -> Tensor:
    """For testing: the whole picture, brought to ``size`` and normalised."""
    _check(images, size)
    batch, side = images.shape[0], images.shape[-1]
    if side == size:
        return _normalised(images.float())
    nothing = torch.zeros(batch, device=images.device)
    whole = torch.full((batch,), float(side), device=images.device)
    return _normalised(_seen(images, Windows(nothing, nothing, whole, whole), size))


# --- the rows --------------------------------------------------------------------------------------------------------


def paper(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Half of the pictures enlarged by an eighth (224 to 252) and cropped at random; half of all mirrored."""
    side, large = images.shape[-1], size + size // 8
    chance, down, right, mirror = uniform(4, len(images), device=images.device, generator=generator)
    step = side / large  # of the enlarged picture's pixels, in pixels of the stored one
    room = large - size + 1  # crops begin at whole pixels of the enlarged picture
    enlarged = chance < 0.5
    tops, lefts = (torch.where(enlarged, (u * room).floor() * step, 0.0) for u in (down, right))
    extent = torch.where(enlarged, size * step, float(side))
    return _normalised(_seen(images, Windows(tops, lefts, extent, extent), size, mirror < 0.5))


def domainbed(images: Tensor, size: int, generator: Generator) -> Tensor:
    """DomainBed's: a window of 0.7 to 1 of the area, mirrored, colours changed by up to 0.3, one of ten gray.

    Colours change as in torchvision's ColorJitter but always in the same order, where torchvision draws one for each
    picture. Windows may lie between pixels.
    """
    device, batch = images.device, len(images)
    windows = _windows_of_area(batch, images.shape[-1], (0.7, 1.0), device, generator)
    mirror, gray, *amounts = uniform(6, batch, device=device, generator=generator)
    pixels = _seen(images, windows, size, mirror < 0.5) / 255
    for change, u in zip((brightness, contrast, saturation), amounts, strict=False):
        pixels = change(pixels, 0.7 + 0.6 * u)
    pixels = hue(pixels, 0.6 * amounts[3] - 0.3)
    pixels = torch.where((gray < 0.1)[:, None, None, None], _gray(pixels), pixels)
    return _normalised(pixels * 255)


def digits(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Moved by up to a sixteenth, in whole pixels; the edge is repeated. Not mirrored: a digit would become another."""
    batch, side = images.shape[0], images.shape[-1]
    most = side // 16
    tops, lefts = (uniform(2, batch, device=images.device, generator=generator) * (2 * most + 1)).floor() - most
    whole = torch.full_like(tops, float(side))
    return _normalised(_seen(images, Windows(tops, lefts, whole, whole), size))


def none(images: Tensor, size: int, generator: Generator) -> Tensor:
    """As for testing."""
    return prepared(images, size)


AUGMENTATIONS: Mapping[str, Augmentation] = MappingProxyType(
    {"paper": paper, "domainbed": domainbed, "digits": digits, "none": none}
)


# --- windows ---------------------------------------------------------------------------------------------------------


class Windows(NamedTuple):
    """What to see of each stored picture, in its pixels: ``(b,)`` each. They may lie between pixels and reach outside."""

    tops: Tensor
    lefts: Tensor
    heights: Tensor
    widths: Tensor


def _windows_of_area(
    batch: int, side: int, area: tuple[float, float], device: torch.device, generator: Generator, tries: int = 10
) -> Windows:
    """Windows of a share of the ``area`` and of sides like 3:4 to 4:3, anywhere inside the picture.

    As torchvision's RandomResizedCrop: the first of ten tries that fits, or all of the picture.
    """
    u = uniform(2, tries, batch, device=device, generator=generator)
    share, ratio = area[0] + (area[1] - area[0]) * u[0], torch.exp((2 * u[1] - 1) * math.log(4 / 3))
    sides = torch.stack([(share / ratio).sqrt(), (share * ratio).sqrt()])  # (2, tries, b), of the picture's own
    fits = (sides <= 1).all(0)
    first = fits.to(torch.uint8).argmax(0).expand(2, 1, batch)
    heights, widths = torch.where(fits.any(0), sides.gather(1, first)[:, 0], 1.0) * side
    down, right = uniform(2, batch, device=device, generator=generator)
    return Windows(down * (side - heights), right * (side - widths), heights, widths)


def _seen(images: Tensor, windows: Windows, size: int, mirrored: Tensor | None = None) -> Tensor:
    """The windows at ``size``, bilinear, 0 to 255: what `interpolate` with ``align_corners=False`` gives for a crop.

    Without a filter against aliasing: sets are stored at about the size that they are used at.
    """
    side = images.shape[-1]
    # Bytes on a canvas whose side is a power of two. grid_sample wants places between -1 and 1, and turns them back into
    # pixels: on this canvas that is exact, and a window that needs no interpolation gets none. Matrix products would be
    # the fast way to interpolate, but round to 11 bits (TF32) or run without tensor cores.
    canvas = 1 << (side - 1).bit_length()
    pixels = F.pad(images, (0, canvas - side, 0, canvas - side)).float()
    tops, lefts, heights, widths = windows
    steps = torch.arange(size, device=images.device, dtype=torch.float32)
    steps_x = steps if mirrored is None else torch.where(mirrored[:, None], size - 1 - steps, steps)
    rows = _places(tops, heights, steps, size, side, canvas)
    columns = _places(lefts, widths, steps_x, size, side, canvas)
    grid = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), -1)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _places(start: Tensor, extent: Tensor, steps: Tensor, size: int, side: int, canvas: int) -> Tensor:
    """Where the centres of the new pixels are, ``(b, size)``, for grid_sample. Outside, the picture's edge is repeated."""
    at = (start[:, None] + (steps + 0.5) * (extent / size)[:, None] - 0.5).clamp(0, side - 1)
    return (2 * at + 1) / canvas - 1


# --- colours, of pixels from 0 to 1 with one amount for each picture -------------------------------------------------


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    return (pixels * _each(factor)).clamp(0, 1)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    return _towards(_gray(pixels).mean((1, 2, 3), keepdim=True), pixels, factor)


def saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    return _towards(_gray(pixels), pixels, factor)


def hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a share of the circle; value and saturation (of HSV) stay."""
    r, g, b = pixels.unbind(1)
    high, low = pixels.amax(1), pixels.amin(1)
    spread = high - low
    over = torch.where(spread > 0, spread, 1.0)
    sixths = torch.where(high == r, (g - b) / over, torch.where(high == g, (b - r) / over + 2, (r - g) / over + 4))
    # a channel is lowest for two sixths of the circle, highest for two, and on its way between them
    turned = (sixths + 6 * turn[:, None, None])[:, None] + _constant((5.0, 3.0, 1.0), pixels.device)
    k = turned.remainder(6)
    return high[:, None] - spread[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


def _towards(ground: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    return (ground + (pixels - ground) * _each(factor)).clamp(0, 1)


def _gray(pixels: Tensor) -> Tensor:
    r, g, b = pixels.unbind(1)
    return (0.2989 * r + 0.587 * g + 0.114 * b)[:, None]  # torchvision's weights


def _each(amount: Tensor) -> Tensor:
    return amount[:, None, None, None]


# --- numbers ---------------------------------------------------------------------------------------------------------


def _normalised(pixels: Tensor) -> Tensor:
    """From 0 to 255, to ImageNet's mean and deviation; channels_last in the same stroke."""
    scale = _constant(tuple(1 / (255 * s) for s in IMAGENET_STD), pixels.device)
    shift = _constant(tuple(-m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)), pixels.device)
    out = torch.empty_like(pixels, memory_format=torch.channels_last)
    return torch.addcmul(shift, pixels, scale, out=out)


@functools.cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One number for each channel. Made once: copies from the host cannot be part of a captured graph."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)


def _check(images: Tensor, size: int) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3]:
        raise ValueError(f"images are {images.dtype} {tuple(images.shape)}, expected uint8 (b, 3, side, side)")
    if size < 1:
        raise ValueError(f"size is {size}; give the side of the pictures that the network sees, such as 224")
