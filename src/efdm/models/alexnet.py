"""The convolutions of AlexNet, for perceptual metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.state_dicts import check_state
from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD

# torchvision's layers: index in `features`, channels in and out, kernel, stride, padding, and whether pooling precedes it
LAYERS: Mapping[str, tuple[int, int, int, int, int, int, bool]] = {
    "relu1": (0, 3, 64, 11, 4, 2, False),
    "relu2": (3, 64, 192, 5, 1, 2, True),
    "relu3": (6, 192, 384, 3, 1, 1, True),
    "relu4": (8, 384, 256, 3, 1, 1, False),
    "relu5": (10, 256, 256, 3, 1, 1, False),
}
TAPS = tuple(LAYERS)
SMALLEST = 31  # pixels; a smaller image has no features left at relu3


class AlexNet(nn.Module):
    """The five convolutions of torchvision's AlexNet, for RGB images in [0, 1] of at least 31 x 31 pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.ModuleDict(
            {
                str(index): nn.Conv2d(inputs, outputs, kernel, stride, padding)
                for index, inputs, outputs, kernel, stride, padding, _ in LAYERS.values()
            }
        )
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(IMAGENET_STD).view(1, 3, 1, 1), persistent=False)

    def taps(self, images: Tensor, taps: Sequence[str] = TAPS) -> list[Tensor]:
        """Return the features after the named ReLUs, in order of depth."""
        if unknown := [t for t in taps if t not in TAPS]:
            raise ValueError(f"AlexNet has no {', '.join(unknown)}; choose from {', '.join(TAPS)}")
        if min(images.shape[-2:]) < SMALLEST:
            raise ValueError(f"AlexNet needs images of at least {SMALLEST} pixels a side, got {tuple(images.shape[-2:])}")
        found: list[Tensor] = []
        x = (images - self.mean) / self.std
        for tap, (index, *_, pooled) in LAYERS.items():
            x = F.max_pool2d(x, 3, 2) if pooled else x
            x = F.relu(self.features[str(index)](x))
            if tap in taps:
                found.append(x)
        return found


def load_alexnet(state: Mapping[str, Tensor]) -> AlexNet:
    """Return AlexNet with the ``features.N`` of torchvision's checkpoint; its classifier is ignored."""
    network = AlexNet()
    state = {key: value.float() for key, value in state.items() if key.startswith("features.")}
    check_state(network, "alexnet", state)
    network.load_state_dict(state)
    return network.eval().requires_grad_(False)
