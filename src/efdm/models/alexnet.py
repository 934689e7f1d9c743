"""AlexNet's convolutions with named taps: a second pair of eyes for measuring pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD

# torchvision's: number among `features`, channels in and out, side, stride, padding, whether a 3x3 pooling comes first
LAYERS: Mapping[str, tuple[int, int, int, int, int, int, bool]] = {
    "conv1": (0, 3, 64, 11, 4, 2, False),
    "conv2": (3, 64, 192, 5, 1, 2, True),
    "conv3": (6, 192, 384, 3, 1, 1, True),
    "conv4": (8, 384, 256, 3, 1, 1, False),
    "conv5": (10, 256, 256, 3, 1, 1, False),
}
TAPS = tuple(name.replace("conv", "relu") for name in LAYERS)
SMALLEST = 31  # pixels a side; less has no position left at relu3


class AlexNet(nn.Module):
    """The five convolutions of torchvision's AlexNet. Pictures come as RGB in [0, 1], at least 31 pixels a side."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, (_, inputs, outputs, side, stride, padding, _) in LAYERS.items():
            self.add_module(name, nn.Conv2d(inputs, outputs, side, stride, padding))
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    def taps(self, images: Tensor, taps: Sequence[str] = TAPS) -> list[Tensor]:
        """Features after the ReLUs named, in order of depth."""
        if unknown := [t for t in taps if t not in TAPS]:
            raise ValueError(f"AlexNet has no {', '.join(unknown)}; it has {', '.join(TAPS)}")
        if min(images.shape[-2:]) < SMALLEST:
            raise ValueError(f"pictures are {tuple(images.shape[-2:])}; AlexNet needs at least {SMALLEST} pixels a side")
        found: list[Tensor] = []
        x = (images - self.mean) / self.std
        for name, (*_, pooled) in LAYERS.items():
            x = F.max_pool2d(x, 3, 2) if pooled else x
            x = F.relu(self.get_submodule(name)(x))
            if name.replace("conv", "relu") in taps:
                found.append(x)
        return found


def load_alexnet(state: Mapping[str, Tensor]) -> AlexNet:
    """From torchvision's checkpoint, or its ``features.N.weight`` and ``features.N.bias`` alone."""
    renamed: dict[str, Tensor] = {}
    for name, (number, *_) in LAYERS.items():
        for kind in ("weight", "bias"):
            key = f"features.{number}.{kind}"
            if key not in state:
                raise ValueError(f"the checkpoint has no {key}; expected torchvision's AlexNet (alexnet-owt-7be5be79.pth)")
            renamed[f"{name}.{kind}"] = state[key].float()
    network = AlexNet()
    wanted = network.state_dict()
    for key, value in renamed.items():
        if value.shape != wanted[key].shape:
            raise ValueError(f"{key} is {tuple(value.shape)} in the checkpoint and {tuple(wanted[key].shape)} in AlexNet")
    network.load_state_dict(renamed)
    return network.eval().requires_grad_(False)
