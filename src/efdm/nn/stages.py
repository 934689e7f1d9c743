"""Where the stages of the common model families are, and how their features are laid out.

One row a family and library. ``stages`` are module names from shallow to deep; mixing belongs after the first ones, where
features carry style more than class (paper, section 4.2). ``prefix`` counts the class tokens of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import torch
from torch import Tensor, nn

STRIDES = (4, 8, 16)  # paper: after layer1, layer2 and layer3 of ResNet-18


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

# library and class name -> its row
FAMILIES: Mapping[tuple[str, str], Family] = MappingProxyType({
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
    ("efdm", "PlainVGG"): Family("VGG", "efdm", _named("stage1", "stage2", "stage3", "stage4", "stage5")),
})  # fmt: skip


def family_of(model: nn.Module) -> Family | None:
    """The row of a model, found by its class and the classes it derives from."""
    for cls in type(model).__mro__:
        row = FAMILIES.get((cls.__module__.split(".")[0], cls.__name__))
        if row is not None:
            return row
    return None


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """In the block the model is in eval mode; afterwards every layer is in its own again, as some may be frozen."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@torch.no_grad()
def stages_at(model: nn.Module, strides: Sequence[int] = STRIDES) -> tuple[str, ...]:
    """Names of the stages after which features last have a 4th, an 8th, a 16th of the picture's side, as in the paper.

    Families count their stages differently; a blank picture is sent through the model to see how large features are. Empty
    for families that are not known, and for those whose features do not shrink (ViT).

    >>> from torch import nn
    >>> from efdm.nn import stages_at
    >>> stages_at(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    ()
    """
    family = family_of(model)
    if family is None:
        return ()
    names, sides, hooks = family.stages(model), dict[str, int](), []
    for name in names:

        def see(module: nn.Module, inputs: object, output: object, name: str = name) -> None:
            if isinstance(output, Tensor) and output.ndim == 4:
                sides[name] = output.shape[1 if family.channel_dim == -1 else 2]

        hooks.append(model.get_submodule(name).register_forward_hook(see))
    size = (getattr(model, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224))  # timm's
    try:
        first = next(model.parameters())
        with eval_mode(model):
            model(torch.zeros(1, *size, device=first.device, dtype=first.dtype))
    finally:
        for hook in hooks:
            hook.remove()
    ends = {round(size[1] / side): name for name, side in sides.items()}  # the last of each stride
    return tuple(ends[stride] for stride in strides if stride in ends)
