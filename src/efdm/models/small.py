"""Our own small network for style transfer: everything happens at a quarter of the picture's size.

An encoder, two mixers and a decoder, about 1.2 million parameters. Features are matched after the encoder and after each
mixer (whoever runs the network does that), so nothing here normalises: a layer that looked at the whole picture could not
be run in tiles. The features that are matched are linear, not behind a ReLU: no ties, and both tails of a distribution.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.vgg import pad

WIDTHS = (16, 32, 80)  # at full, half and quarter size
DEEP = 128  # inside a mixer, at an eighth


class Conv(nn.Conv2d):
    """A 3x3 convolution with mirrored borders."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, 3, stride)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(pad(input))


class UpConv(nn.Conv2d):
    """A 3x3 convolution of the features at twice their size, each repeated, computed without ever making them that size.

    Of nine taps that fall on repeated values, only four are different: the kernel is summed accordingly, once for each of
    the four new positions, and the four results are interleaved. The large intermediate would cost more than the sums.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3)

    def forward(self, input: Tensor) -> Tensor:
        kernels = [k for rows in _summed(self.weight, 2) for k in _summed(rows, 3)]
        weight = torch.stack(kernels, 1).flatten(0, 1)
        bias = self.bias.repeat_interleave(4)  # type: ignore[union-attr]
        # mirrored borders of the large picture are repeated borders of the small one
        return F.pixel_shuffle(F.conv2d(pad(input, "replicate"), weight, bias), 2)


def _summed(kernel: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """What a kernel of three is, seen from the even and from the odd positions of repeated values."""
    a, b, c = kernel.unbind(dim)
    none = torch.zeros_like(a)
    return torch.stack([a, b + c, none], dim), torch.stack([none, a + b, c], dim)


class Residual(nn.Module):
    """``x + conv(relu(conv(x)))``; begins as the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Conv(width, width), Conv(width, width)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu_(self.first(x)))


class SmallEncoder(nn.Module):
    """Picture to features at a quarter of its size."""

    def __init__(self) -> None:
        super().__init__()
        full, half, quarter = WIDTHS
        self.at_full, self.at_half, self.at_quarter = Conv(3, full), Conv(full, half, 2), Conv(half, quarter, 2)
        self.refine = Residual(WIDTHS[2])

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu_(self.at_full(images - 0.5))
        x = F.relu_(self.at_half(x))
        return self.refine(self.at_quarter(x))


class Mixer(nn.Module):
    """A residual step with a wide view: one branch looks closely, the other at half the size with more channels."""

    def __init__(self) -> None:
        super().__init__()
        width = WIDTHS[2]
        self.near = Residual(width)
        self.down, self.wide, self.up = Conv(width, DEEP, 2), Residual(DEEP), nn.Conv2d(DEEP, width, 1)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        far = self.up(F.relu_(self.wide(F.relu_(self.down(x)))))
        far = F.interpolate(far, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.near(x) + far[..., : x.shape[-2], : x.shape[-1]]


class SmallDecoder(nn.Module):
    """Features to picture."""

    def __init__(self) -> None:
        super().__init__()
        self.refine = Residual(WIDTHS[2])
        self.at_half, self.at_full = UpConv(WIDTHS[2], WIDTHS[1]), UpConv(WIDTHS[1], WIDTHS[0])
        self.rgb = Conv(WIDTHS[0], 3)

    def forward(self, features: Tensor) -> Tensor:
        x = self.refine(features)
        x = F.relu_(self.at_half(x))
        x = F.relu_(self.at_full(x))
        return self.rgb(x) + 0.5
