"""The small style-transfer network: an encoder, two mixers and a decoder at stride 4, with 1.31 million parameters.

The caller matches features after the encoder and after each mixer. The network itself has no normalization layers, because
global statistics would prevent tiling. The matched features do not follow a ReLU, so they have hardly any ties.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.vgg import pad

WIDTHS = (16, 32, 80)  # channels at strides 1, 2 and 4
DEEP = 128  # channels inside a mixer, at stride 8


class Conv(nn.Conv2d):
    """A 3x3 convolution with reflection padding."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, 3, stride)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(pad(input))


class UpConv(nn.Conv2d):
    """Nearest-neighbour upsampling by 2 followed by a 3x3 convolution, without the upsampled intermediate.

    Each output position depends on only four distinct input values, so the kernel is summed to 2x2 taps for each of the four
    output positions, and the four results are interleaved. This is faster than convolving the upsampled features.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3)

    def forward(self, input: Tensor) -> Tensor:
        kernels = [k for rows in _summed(self.weight, 2) for k in _summed(rows, 3)]
        weight = torch.stack(kernels, 1).flatten(0, 1)
        bias = self.bias.repeat_interleave(4)  # type: ignore[union-attr]
        # reflection padding of the upsampled features equals replication padding of the input
        return F.pixel_shuffle(F.conv2d(pad(input, "replicate"), weight, bias), 2)


def _summed(kernel: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return a kernel of three taps with taps on equal inputs merged, for even and for odd output positions."""
    a, b, c = kernel.unbind(dim)
    zero = torch.zeros_like(a)
    return torch.stack([a, b + c, zero], dim), torch.stack([zero, a + b, c], dim)


class Residual(nn.Module):
    """``x + conv(relu(conv(x)))``, initialized to the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Conv(width, width), Conv(width, width)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu_(self.first(x)))


class SmallEncoder(nn.Module):
    """Map RGB images in [0, 1] to features at stride 4."""

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
    """A residual block with two branches: one at stride 4, and a wider one at stride 8 with a larger receptive field."""

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
    """Map features at stride 4 back to RGB images."""

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
