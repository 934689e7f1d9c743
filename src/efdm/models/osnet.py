"""OSNet for person re-identification (Zhou et al., "Omni-Scale Feature Learning for Person Re-Identification", ICCV 2019).

Parameters have the names of torchreid, whose checkpoints load unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (64, 256, 384, 512)  # channels after conv1, conv2, conv3 and conv4; paper, Table 1
FEATURES = 512  # width of the embedding, for every width of the network
STREAMS = "abcd"  # stream b has two convolutions of 3x3 and sees 5x5 pixels, c sees 7x7, d sees 9x9
BOTTLENECK = 4  # ratio of the channels of a block to those of its streams
GATE_REDUCTION = 16  # paper, section 3.2


class OSNet(nn.Module):
    """A classifier ``(b, 3, h, w) -> (b, classes)``, usually for ImageNet-normalized images of 256 x 128 pixels.

    ``width`` is a factor of all channels before the embedding. In eval mode, torchreid's model returns the input of the
    classifier. This one returns logits in both modes; use `efdm.models.embedding` for the features.
    """

    # stages, as timm declares them; paper of EFDMix: OSNet is mixed after conv2 and conv3
    feature_info: ClassVar = [{"module": "conv2", "reduction": 8}, {"module": "conv3", "reduction": 16}]

    def __init__(self, classes: int, width: float = 1.0) -> None:
        super().__init__()
        stem, first, second, third = (int(width * channels) for channels in WIDTHS)
        self.conv1 = _conv(3, stem, 7, stride=2)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.conv2 = nn.Sequential(OSBlock(stem, first), OSBlock(first, first), _transition(first))
        self.conv3 = nn.Sequential(OSBlock(first, second), OSBlock(second, second), _transition(second))
        self.conv4 = nn.Sequential(OSBlock(second, third), OSBlock(third, third))
        self.conv5 = _conv(third, third)
        self.global_avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(nn.Linear(third, FEATURES), nn.BatchNorm1d(FEATURES), nn.ReLU(inplace=True))
        self.classifier = nn.Linear(FEATURES, classes)
        self.apply(_initialize)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.conv5(self.conv4(self.conv3(self.conv2(self.maxpool(self.conv1(images))))))
        return self.classifier(self.fc(self.global_avgpool(maps).flatten(1)))


class OSBlock(nn.Module):
    """A residual block with streams of one to four 3x3 convolutions, added with weights from a gate that they share."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        width = outputs // BOTTLENECK
        self.conv1 = _conv(inputs, width)
        self.conv2a = _light_conv(width)
        for length, letter in enumerate(STREAMS[1:], 2):
            self.add_module(f"conv2{letter}", nn.Sequential(*(_light_conv(width) for _ in range(length))))
        hidden = width // GATE_REDUCTION
        self.gate = _sequential(
            global_avgpool=nn.AdaptiveAvgPool2d(1), fc1=nn.Conv2d(width, hidden, 1), relu=nn.ReLU(inplace=True),
            fc2=nn.Conv2d(hidden, width, 1), gate_activation=nn.Sigmoid(),
        )  # fmt: skip
        self.conv3 = _conv(width, outputs)[:2]  # without ReLU, which follows the sum
        self.downsample = nn.Identity() if inputs == outputs else _conv(inputs, outputs)[:2]

    def forward(self, x: Tensor) -> Tensor:
        narrow = self.conv1(x)
        streams = (self.get_submodule(f"conv2{letter}")(narrow) for letter in STREAMS)
        a, b, c, d = (stream * self.gate(stream) for stream in streams)
        return F.relu(self.conv3(a + b + c + d) + self.downsample(x))


def _sequential(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def _conv(inputs: int, outputs: int, size: int = 1, stride: int = 1) -> nn.Sequential:
    """Return a convolution, batch normalization and ReLU."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return _sequential(conv=conv, bn=nn.BatchNorm2d(outputs), relu=nn.ReLU(inplace=True))


def _light_conv(width: int) -> nn.Sequential:
    """Return a 3x3 convolution factorized into a pointwise one and a depthwise one."""
    pointwise = nn.Conv2d(width, width, 1, bias=False)
    depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
    return _sequential(conv1=pointwise, conv2=depthwise, bn=nn.BatchNorm2d(width), relu=nn.ReLU(inplace=True))


def _transition(width: int) -> nn.Sequential:
    return nn.Sequential(_conv(width, width), nn.AvgPool2d(2))


def _initialize(layer: nn.Module) -> None:
    """Initialize as torchreid does, so that networks trained from scratch are comparable."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=0.01)
    if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
        nn.init.zeros_(layer.bias)
