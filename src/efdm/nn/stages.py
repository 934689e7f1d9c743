"""Where the stages of the common model families are, and how their features are laid out.

One row a family and library. ``stages`` are module names from shallow to deep; mixing belongs after the first ones, where
features carry style more than class (paper, section 4.2). ``prefix`` counts the class tokens of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from torch import nn


@dataclass(frozen=True)
class Family:
    name: str
    library: str
    stages: Callable[[nn.Module], list[str]]
    channel_dim: int = 1
    prefix: Callable[[nn.Module], int] = lambda model: 0


def _named(*names: str) -> Callable[[nn.Module], list[str]]:
    return lambda model: list(names)


def _numbered(container: str, step: int = 1, start: int = 0) -> Callable[[nn.Module], list[str]]:
    """Every `step`-th child of a container."""

    def names(model: nn.Module) -> list[str]:
        children = [name for name, _ in model.get_submodule(container).named_children()]
        return [f"{container}.{name}" for name in children[start::step]]

    return names


def _before_each_halving(container: str) -> Callable[[nn.Module], list[str]]:
    """The children of a torchvision or timm `features` list after which the resolution changes: its pools."""

    def names(model: nn.Module) -> list[str]:
        children = model.get_submodule(container).named_children()
        return [f"{container}.{name}" for name, child in children if isinstance(child, nn.MaxPool2d)]

    return names


def _last_of_each_resolution(model: nn.Module) -> list[str]:
    """torchvision's MobileNets: the last block before each one that halves the resolution."""
    blocks = list(model.get_submodule("features").named_children())[1:-1]

    def halves(block: nn.Module) -> bool:
        return any(isinstance(m, nn.Conv2d) and m.stride[0] > 1 for m in block.modules())

    ends = [a[0] for a, b in pairwise(blocks) if halves(b[1])]
    return [f"features.{name}" for name in [*ends, blocks[-1][0]]]


_RESNET = _named("layer1", "layer2", "layer3", "layer4")

# class name in torchvision or timm -> its row
FAMILIES: dict[tuple[str, str], Family] = {
    ("torchvision", "ResNet"): Family("ResNet", "torchvision", _RESNET),
    ("timm", "ResNet"): Family("ResNet", "timm", _RESNET),
    ("torchvision", "VGG"): Family("VGG", "torchvision", _before_each_halving("features")),
    ("timm", "VGG"): Family("VGG", "timm", _before_each_halving("features")),
    ("torchvision", "MobileNetV2"): Family("MobileNet", "torchvision", _last_of_each_resolution),
    ("torchvision", "MobileNetV3"): Family("MobileNet", "torchvision", _last_of_each_resolution),
    ("timm", "MobileNetV3"): Family("MobileNet", "timm", _numbered("blocks")),
    ("torchvision", "EfficientNet"): Family("EfficientNet", "torchvision", _numbered("features", start=1)),
    ("timm", "EfficientNet"): Family("EfficientNet and MobileNetV2", "timm", _numbered("blocks")),
    ("torchvision", "ConvNeXt"): Family("ConvNeXt", "torchvision", _numbered("features", step=2, start=1)),
    ("timm", "ConvNeXt"): Family("ConvNeXt", "timm", _numbered("stages")),
    ("torchvision", "VisionTransformer"): Family("ViT", "torchvision", _numbered("encoder.layers"), -1, lambda m: 1),
    ("timm", "VisionTransformer"): Family(
        "ViT", "timm", _numbered("blocks"), -1, lambda m: int(getattr(m, "num_prefix_tokens", 0))
    ),
    ("torchvision", "SwinTransformer"): Family("Swin", "torchvision", _numbered("features", step=2, start=1), -1),
    ("timm", "SwinTransformer"): Family("Swin", "timm", _numbered("layers"), -1),
    ("timm", "SwinTransformerV2"): Family("Swin", "timm", _numbered("layers"), -1),
}


def family_of(model: nn.Module) -> Family | None:
    """The row of a model, found by its class and the classes it derives from."""
    for cls in type(model).__mro__:
        row = FAMILIES.get((cls.__module__.split(".")[0], cls.__name__))
        if row is not None:
            return row
    return None
