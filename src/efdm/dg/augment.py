"""Augmentation of training pictures on their device: random crops, flips and colours, from uint8 to normalized floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from efdm.nn.draw import Generator, uniform
from efdm.recognition import pixels
from efdm.recognition.pixels import Windows, normalized, resampled

Augmentation = Callable[[Tensor, int, Generator], Tensor]


def augment_batch(images: Tensor, name: str, size: int, generator: Generator = None) -> Tensor:
    """Return augmented training pictures: uint8 ``(b, 3, side, side)`` to normalized float32 ``(b, 3, size, size)``.

    ``name`` is a row of `AUGMENTATIONS`. The result is in channels_last format. Random numbers come from ``generator``,
    which must be on the device of the images.
    """
    pixels.check_images(images)
    if images.shape[2] != images.shape[3]:
        raise ValueError(f"images must be uint8 (b, 3, side, side), got {images.dtype} {tuple(images.shape)}")
    return AUGMENTATIONS[name](images, size, generator)


def paper(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Enlarge by an eighth (224 to 252) and crop at random, and flip, each with probability 0.5, as in the paper."""
    chance, down, right, mirror = uniform(4, len(images), device=images.device, generator=generator)
    return normalized(resampled(images, pixels.enlarged_windows(images, size, chance, down, right), size, mirror < 0.5))


def domainbed(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Apply DomainBed's random resized crop (0.7 to 1 of the area), flip, colour jitter of 0.3 and grayscale (p = 0.1).

    Unlike torchvision's, the operations of the jitter have a fixed order, and crops may start between pixels.
    """
    device, batch = images.device, len(images)
    windows = _windows_of_area(batch, images.shape[-1], (0.7, 1.0), device, generator)
    mirror, grayscale, *factors, turn = uniform(6, batch, device=device, generator=generator)
    out = resampled(images, windows, size, mirror < 0.5) / 255
    for change, u in zip((pixels.brightness, pixels.contrast, pixels.saturation), factors, strict=True):
        out = change(out, 0.7 + 0.6 * u)
    out = pixels.hue(out, 0.6 * turn - 0.3)
    out = torch.where((grayscale < 0.1)[:, None, None, None], pixels.gray(out), out)
    return normalized(out * 255)


def digits(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Shift by up to a sixteenth, in whole pixels, repeating the edge. No flip: a flipped digit may be another digit."""
    side = images.shape[-1]
    shift = side // 16
    tops, lefts = (uniform(2, len(images), device=images.device, generator=generator) * (2 * shift + 1)).floor() - shift
    whole = torch.full_like(tops, float(side))
    return normalized(resampled(images, Windows(tops, lefts, whole, whole), size))


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "paper": paper, "domainbed": domainbed, "digits": digits, "none": lambda images, size, _: pixels.prepared(images, size),
}  # fmt: skip


def _windows_of_area(
    batch: int, side: int, area: tuple[float, float], device: torch.device, generator: Generator
) -> Windows:
    """Return random windows with a share of the area within ``area`` and aspect ratios from 3:4 to 4:3.

    Like torchvision's RandomResizedCrop: the first of ten tries that fits, otherwise the whole picture.
    """
    u = uniform(2, 10, batch, device=device, generator=generator)
    share, ratio = area[0] + (area[1] - area[0]) * u[0], torch.exp((2 * u[1] - 1) * math.log(4 / 3))
    sides = torch.stack([(share / ratio).sqrt(), (share * ratio).sqrt()])  # (2, 10, b), relative to the side
    heights, widths = pixels.first_fitting(sides, (sides <= 1).all(0), 1.0) * side
    down, right = uniform(2, batch, device=device, generator=generator)
    return Windows(down * (side - heights), right * (side - widths), heights, widths)
