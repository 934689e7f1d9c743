"""Changes of whole batches before the forward pass: pictures ``(b, c, h, w)`` and class probabilities ``(b, k)``.

Partners, weights and positions are drawn on the device of the pictures, and nothing is read back from a GPU. ``p`` is the
probability that a batch is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from efdm.errors import SettingError
from efdm.nn import draw
from efdm.nn.layer import check_batch, check_ranges
from efdm.nn.pairing import paired
from efdm.ops import blend
from efdm.recognition.pixels import rectangles


@dataclass(frozen=True)
class _PairMix:
    alpha: float
    p: float = 1.0
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_ranges(p=self.p, alpha=self.alpha)


@dataclass(frozen=True)
class Mixup(_PairMix):
    """Mixup (Zhang et al., ICLR 2018): blend pairs of pictures and targets, with one weight per batch."""

    alpha: float = 0.2  # paper, ImageNet: 0.1 to 0.4

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(images, targets)
        device = images.device
        gate = draw.gate(self.p, device, self.generator)
        kept = draw.beta(self.alpha, 1, device, self.generator)
        partner = draw.permutation(images.shape[0], device, self.generator)
        if draw.closed(gate):
            return images, targets
        weight = torch.where(gate, 1 - kept, 0.0)
        return blend(images, paired(images, partner), weight), blend(targets, paired(targets, partner), weight)


@dataclass(frozen=True)
class CutMix(_PairMix):
    """CutMix (Yun et al., ICCV 2019): replace a rectangle by one of another picture, and blend targets by its area.

    One rectangle per batch, with the picture's aspect ratio and a share of its area drawn from ``Beta(alpha, alpha)``. It is
    clipped to the picture, and targets follow the pixels that were replaced.
    """

    alpha: float = 1.0  # paper; with p = 1 for ImageNet

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(images, targets)
        device, (height, width) = images.device, images.shape[-2:]
        gate = draw.gate(self.p, device, self.generator)
        side = (1 - draw.beta(self.alpha, 1, device, self.generator)).sqrt()  # relative to the picture's
        y, x = (draw.integers(length, 1, device=device, generator=self.generator) for length in (height, width))
        partner = draw.permutation(images.shape[0], device, self.generator)
        if draw.closed(gate):
            return images, targets
        replaced = gate & rectangles((height, width), (y, x), ((side * height).long(), (side * width).long()))
        share = replaced.sum((-2, -1)) / (height * width)
        images = torch.where(replaced.unsqueeze(1), paired(images, partner), images)
        return images, blend(targets, paired(targets, partner), share)


@dataclass(frozen=True)
class Cutout:
    """Cutout (DeVries and Taylor, 2017): set a square of every picture to 0, the mean of normalized pictures.

    ``side`` is a fraction of the picture's shorter side. Each picture has its own square, centred on a random pixel and
    clipped to the picture. Targets are unchanged.
    """

    side: float = 0.5  # paper: 16 of 32 pixels for CIFAR-10
    p: float = 1.0
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_ranges(p=self.p)
        if not 0 < self.side <= 1:
            raise SettingError(f"side must be in (0, 1], got {self.side}; the paper uses 0.5", "side")

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(images, targets)
        device, batch, (height, width) = images.device, images.shape[0], images.shape[-2:]
        gate = draw.gate(self.p, device, self.generator)
        y, x = (draw.integers(length, batch, device=device, generator=self.generator) for length in (height, width))
        if draw.closed(gate):
            return images, targets
        side = torch.full_like(y, max(1, round(self.side * min(height, width))))
        cut = gate & rectangles((height, width), (y, x), (side, side))
        return torch.where(cut.unsqueeze(1), 0.0, images), targets
