"""Operations on whole batches of pictures on their device: windows, resampling, colours, rectangles, normalization.

The host reads no values back, and shapes do not depend on random draws, so a CUDA graph can capture everything. (kornia and
torchvision read random parameters back, or draw them on the host.) Each picture is resampled once: enlarging, cropping and
flipping are one window of the stored picture.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD
from efdm.recognition.cuda import has_kernels, launch

Size = int | tuple[int, int]  # a square, or (height, width)


class Windows(NamedTuple):
    """A window of each stored picture, in pixels: four tensors ``(b,)``. It may start between pixels and extend outside."""

    tops: Tensor
    lefts: Tensor
    heights: Tensor
    widths: Tensor


def height_and_width(size: Size) -> tuple[int, int]:
    """Return ``(height, width)``."""
    return (size, size) if isinstance(size, int) else size


def check_images(images: Tensor) -> None:
    """Raise ValueError unless ``images`` are uint8 ``(b, 3, h, w)``."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images must be uint8 (b, 3, h, w), got {images.dtype} {tuple(images.shape)}")


def prepared(images: Tensor, size: Size) -> Tensor:
    """Return test pictures: uint8 ``(b, 3, h, w)``, resized to ``size`` and normalized."""
    check_images(images)
    if images.shape[2:] == height_and_width(size):
        return normalized(images.float())
    return normalized(resampled(images, whole_windows(images), size))


def whole_windows(images: Tensor) -> Windows:
    """Return windows that cover the pictures."""
    zero = torch.zeros(len(images), device=images.device)
    return Windows(zero, zero, zero + images.shape[2], zero + images.shape[3])


def enlarged_windows(images: Tensor, size: Size, chance: Tensor, down: Tensor, right: Tensor) -> Windows:
    """Return windows that crop ``size`` at random from pictures enlarged by an eighth, where ``chance`` is below 0.5.

    The other windows are whole pictures. ``chance``, ``down`` and ``right`` are uniform draws ``(b,)``.
    """
    starts, extents = [], []
    for stored, new, u in zip(images.shape[2:], height_and_width(size), (down, right), strict=True):
        large = new + new // 8
        step = stored / large  # one pixel of the enlarged picture, in stored pixels
        room = large - new + 1  # crops start at whole pixels of the enlarged picture
        starts.append(torch.where(chance < 0.5, (u * room).floor() * step, 0.0))
        extents.append(torch.where(chance < 0.5, new * step, float(stored)))
    return Windows(starts[0], starts[1], extents[0], extents[1])


def resampled(images: Tensor, windows: Windows, size: Size, flipped: Tensor | None = None) -> Tensor:
    """Return the windows resampled to ``size`` by bilinear interpolation (``align_corners=False``), 0 to 255.

    No antialiasing: data sets are stored at about the size at which they are used.
    """
    height, width = images.shape[2:]
    if has_kernels(images):
        out = torch.empty((len(images), 3, *height_and_width(size)), device=images.device)
        extents = (height, width, *out.shape[2:], len(images))
        launch("resample", out.numel() // 3, images.contiguous(), torch.stack(windows), flipped, out, *extents)
        return out
    # Padded to powers of two: grid_sample's conversion between pixels and [-1, 1] is then exact, and a window that needs
    # no interpolation gets none. Interpolation by matrix products would be faster but rounds to 11 bits (TF32).
    tall, wide = (1 << (length - 1).bit_length() for length in (height, width))
    pixels = F.pad(images, (0, wide - width, 0, tall - height)).float()
    tops, lefts, heights, widths = windows
    down, right = (torch.arange(n, device=images.device, dtype=torch.float32) for n in height_and_width(size))
    right = right if flipped is None else torch.where(flipped[:, None], len(right) - 1 - right, right)
    rows = _centres(tops, heights, down, height, tall)
    columns = _centres(lefts, widths, right, width, wide)
    grid = torch.stack(torch.broadcast_tensors(columns[:, None, :], rows[:, :, None]), -1)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _centres(start: Tensor, extent: Tensor, steps: Tensor, length: int, canvas: int) -> Tensor:
    """Return the centres of the new pixels for grid_sample, ``(b, size)``, clamped to the picture."""
    at = (start[:, None] + (steps + 0.5) * (extent / steps.shape[-1])[:, None] - 0.5).clamp(0, length - 1)
    return (2 * at + 1) / canvas - 1


def first_fitting(sides: Tensor, fits: Tensor, otherwise: float) -> Tensor:
    """Return the first of several heights and widths ``(2, tries, b)`` that fit, or ``otherwise``, as ``(2, b)``."""
    first = fits.to(torch.uint8).argmax(0).expand(2, 1, -1)
    return torch.where(fits.any(0), sides.gather(1, first)[:, 0], otherwise)


def rectangles(size: tuple[int, int], center: tuple[Tensor, Tensor], sides: tuple[Tensor, Tensor]) -> Tensor:
    """Return masks ``(..., h, w)`` of rectangles, clipped to the picture, from integer centers and sides ``(...)``."""
    within = []
    for length, middle, side in zip(size, center, sides, strict=True):
        first = (middle - side // 2).unsqueeze(-1)
        place = torch.arange(length, device=middle.device)
        within.append((place >= first) & (place < first + side.unsqueeze(-1)))
    return within[0].unsqueeze(-1) & within[1].unsqueeze(-2)


# colours: pixels from 0 to 1, one amount per picture


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    return (pixels * factor[:, None, None, None]).clamp(0, 1)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    return _blend(gray(pixels).mean((1, 2, 3), keepdim=True), pixels, factor)


def saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    return _blend(gray(pixels), pixels, factor)


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


def _blend(base: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    return (base + (pixels - base) * factor[:, None, None, None]).clamp(0, 1)


def gray(pixels: Tensor) -> Tensor:
    r, g, b = pixels.unbind(1)
    return (0.2989 * r + 0.587 * g + 0.114 * b)[:, None]  # torchvision's weights


def normalized(pixels: Tensor) -> Tensor:
    """Return pixels (0 to 255) normalized by ImageNet's mean and standard deviation, in channels_last format."""
    scale = _constant(tuple(1 / (255 * s) for s in IMAGENET_STD), pixels.device)
    shift = _constant(tuple(-m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)), pixels.device)
    out = torch.empty_like(pixels, memory_format=torch.channels_last)
    return torch.addcmul(shift, pixels, scale, out=out)


@functools.cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return one number per channel as a tensor. Cached, because a CUDA graph cannot capture copies from the host."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)
