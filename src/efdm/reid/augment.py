"""Augmentation of training pictures on their device: uint8 pictures to normalized floats.

The operations are those of torchreid, drawn for each picture: a flip with probability 0.5; a crop from the picture enlarged
by an eighth with probability 0.5; brightness within 0.2 and contrast within 0.15 of the original; and random erasing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import torch
from torch import Tensor

from efdm.nn.draw import Generator, uniform
from efdm.recognition import pixels

Augmentation = Literal["flip", "crop", "jitter", "erase"]


def augment_batch(images: Tensor, names: Collection[str], size: pixels.Size, generator: Generator = None) -> Tensor:
    """Return augmented training pictures: uint8 ``(b, 3, h, w)`` to normalized float32 of ``size``, in channels_last format.

    Random numbers come from ``generator``, which must be on the device of the images.
    """
    pixels.check_images(images)
    chance, down, right, mirror, light, spread = uniform(6, len(images), device=images.device, generator=generator)
    cropped = "crop" in names
    windows = pixels.enlarged_windows(images, size, chance, down, right) if cropped else pixels.whole_windows(images)
    out = pixels.resampled(images, windows, size, mirror < 0.5 if "flip" in names else None)
    if "jitter" in names:  # torchreid applies the two in random order
        out = pixels.brightness(out / 255, 0.8 + 0.4 * light)
        out = pixels.contrast(out, 0.85 + 0.3 * spread) * 255
    out = pixels.normalized(out)
    return random_erase(out, generator) if "erase" in names else out


def random_erase(images: Tensor, generator: Generator = None) -> Tensor:
    """Set a rectangle of each normalized picture to 0, the mean of ImageNet, with probability 0.5.

    The rectangle has 0.02 to 0.4 of the area and an aspect ratio from 0.3 to 1 / 0.3, and is the first of ten tries that is
    smaller than the picture (Zhong et al., "Random Erasing Data Augmentation", AAAI 2020; torchreid tries a hundred times).
    """
    batch, (height, width), device = len(images), images.shape[2:], images.device
    share, ratio = uniform(2, 10, batch, device=device, generator=generator)
    area, ratio = (0.02 + 0.38 * share) * height * width, 0.3 + (1 / 0.3 - 0.3) * ratio
    sides = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()]).round()  # (2, 10, b)
    fits = (sides[0] < height) & (sides[1] < width)
    tall, wide = pixels.first_fitting(sides, fits, 0.0)
    chance, down, right = uniform(3, batch, device=device, generator=generator)
    top, left = (down * (height - tall + 1)).floor(), (right * (width - wide + 1)).floor()
    y, x = ((start + (side / 2).floor()).long() for start, side in ((top, tall), (left, wide)))
    mask = pixels.rectangles((height, width), (y, x), (tall.long(), wide.long()))
    return torch.where((mask & (chance < 0.5)[:, None, None])[:, None], 0.0, images)
