"""The convolutions of AlexNet, for perceptual metrics."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.state_dicts import load_state
from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD

# index in torchvision's `features` -> channels in and out, kernel, stride, padding
LAYERS: Mapping[str, tuple[int, int, int, int, int]] = {
    "0": (3, 64, 11, 4, 2), "3": (64, 192, 5, 1, 2), "6": (192, 384, 3, 1, 1), "8": (384, 256, 3, 1, 1),
    "10": (256, 256, 3, 1, 1),
}  # fmt: skip
POOLED = ("3", "6")  # layers that follow max pooling


class AlexNet(nn.Module):
    """The five convolutions of torchvision's AlexNet, for RGB images in [0, 1] of at least 31 x 31 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.ModuleDict({index: nn.Conv2d(*layer) for index, layer in LAYERS.items()})

    def taps(self, images: Tensor) -> list[Tensor]:
        """Return the features after every ReLU."""
        mean, std = (images.new_tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
        x, features = (images - mean) / std, list[Tensor]()
        for index, conv in self.features.items():
            x = F.relu(conv(F.max_pool2d(x, 3, 2) if index in POOLED else x))
            features.append(x)
        return features


def load_alexnet(state: Mapping[str, Tensor]) -> AlexNet:
    """Return AlexNet with the ``features.N`` of torchvision's checkpoint; its classifier is ignored."""
    features = {key: value for key, value in state.items() if key.startswith("features.")}
    return load_state(AlexNet(), "alexnet", features).eval().requires_grad_(False)
