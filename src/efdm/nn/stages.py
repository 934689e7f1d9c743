"""Stages of the common model families, and the layout of their features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

STRIDES = (4, 8, 16)  # paper: after layer1, layer2 and layer3 of ResNet-18
_CHANNELS_FIRST = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.modules.batchnorm._BatchNorm, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Stages of a model as module names from shallow to deep, and the layout of their features.

    ``channel_dim`` is None if the layout is unknown. ``prefix`` returns the number of class and register tokens. ``stem``
    names a module whose features have channels first, unlike the others.
    """

    stages: Callable[[nn.Module], list[str]]
    channel_dim: int | None = 1
    prefix: Callable[[nn.Module], int] = lambda model: 0
    stem: str = ""


def _named(*names: str) -> Callable[[nn.Module], list[str]]:
    return lambda model: list(names)


def _children(of: str, kind: type = nn.Module, start: int = 0, step: int = 1) -> Callable[[nn.Module], list[str]]:
    """Return every ``step``-th child of a ``kind``."""

    def names(model: nn.Module) -> list[str]:
        children = model.get_submodule(of).named_children()
        return [f"{of}.{name}" for name, child in children if isinstance(child, kind)][start::step]

    return names


def _last_of_each_resolution(model: nn.Module) -> list[str]:
    """Return the last block at each resolution of torchvision's MobileNets."""
    blocks = list(model.get_submodule("features").named_children())[1:-1]

    def halves(block: nn.Module) -> bool:
        return any(isinstance(m, nn.Conv2d) and m.stride[0] > 1 for m in block.modules())

    ends = [a[0] for a, b in pairwise(blocks) if halves(b[1])]
    return [f"features.{name}" for name in [*ends, blocks[-1][0]]]


def _prefix_tokens(model: nn.Module) -> int:
    return int(getattr(model, "num_prefix_tokens", None) or 0)


def _feature_info(model: nn.Module) -> dict[str, int]:
    """Return the modules of timm's ``feature_info`` with a reduction of at least 4, and their reductions."""
    info: Any = getattr(model, "feature_info", None)
    rows = [row for row in getattr(info, "info", info) or [] if isinstance(row, dict) and row.get("reduction", 0) >= 4]
    modules = dict(model.named_modules(remove_duplicate=False))
    # features_only=True replaces the dots of names
    names = [name if name in modules else name.replace(".", "_") for name in (str(row.get("module")) for row in rows)]
    return dict(zip(names, (row["reduction"] for row in rows), strict=True)) if all(n in modules for n in names) else {}


def _listed_in_feature_info(model: nn.Module) -> list[str]:
    return list(_feature_info(model))


_RESNET = _named("layer1", "layer2", "layer3", "layer4")
_VGG = _children("features", nn.MaxPool2d)

# library and class name -> row
FAMILIES: Mapping[tuple[str, str], Family] = {
    ("torchvision", "ResNet"): Family(_RESNET),
    ("timm", "ResNet"): Family(_RESNET),
    ("torchvision", "VGG"): Family(_VGG),
    ("timm", "VGG"): Family(_VGG),
    ("torchvision", "MobileNetV2"): Family(_last_of_each_resolution),
    ("torchvision", "MobileNetV3"): Family(_last_of_each_resolution),
    ("timm", "MobileNetV3"): Family(_children("blocks")),
    ("torchvision", "EfficientNet"): Family(_children("features", start=1)),
    ("timm", "EfficientNet"): Family(_children("blocks")),
    ("torchvision", "ConvNeXt"): Family(_children("features", start=1, step=2)),
    ("timm", "ConvNeXt"): Family(_children("stages")),
    ("torchvision", "VisionTransformer"): Family(_children("encoder.layers"), -1, lambda m: 1),
    ("timm", "VisionTransformer"): Family(_children("blocks"), -1, _prefix_tokens),
    ("torchvision", "SwinTransformer"): Family(_children("features", start=1, step=2), -1),
    ("timm", "ConvMixer"): Family(_children("blocks")),
    ("timm", "Hiera"): Family(_listed_in_feature_info, -1),
    ("timm", "VOLO"): Family(_listed_in_feature_info, -1, stem="patch_embed"),
    # the class token joins after the blocks, in ConViT before the last ones
    ("timm", "Cait"): Family(_children("blocks"), -1),
    ("timm", "Xcit"): Family(_children("blocks"), -1),
    ("timm", "ConVit"): Family(_children("blocks"), -1),
}  # fmt: skip


def family_of(model: nn.Module) -> Family | None:
    """Return the row of a model, found by its class and base classes, or a row built from timm's ``feature_info``."""
    for cls in type(model).__mro__:
        if row := FAMILIES.get((cls.__module__.split(".")[0], cls.__name__)):
            return row
    return _family_from_feature_info(model)


def _family_from_feature_info(model: nn.Module) -> Family | None:
    names = _feature_info(model)
    if not names:
        return None
    last = (
        (len(names) > 1 and len(set(names.values())) == 1)  # the resolution of a transformer's blocks does not change
        or getattr(model, "output_fmt", "NCHW") in ("NHWC", "NLC")
        or getattr(model, "use_conv", True) is False  # LeViT has tokens, its variants with convolutions NCHW
    )
    return Family(_named(*names), -1 if last else None, _prefix_tokens, stem="stem")


def stages_of(model: nn.Module) -> dict[str, str]:
    """Return the stages of a known family, from shallow to deep, as ``{"stage1": module name, ...}``.

    Known families are the rows of `FAMILIES` and timm models with ``feature_info``. The result is empty for other models.
    """
    family = family_of(model)
    return {} if family is None else {f"stage{i}": name for i, name in enumerate(family.stages(model), 1)}


class Stage(NamedTuple):
    """A module of a model and the layout of its features: ``(channel_dim, prefix)``."""

    name: str
    module: nn.Module
    layout: tuple[int, int]
    layout_known: bool = True


def find_stage(model: nn.Module, stage: str) -> Stage:
    """Return a stage of a known family (``"stage1"``), or any module by its name.

    Modules inside a known family have the family's layout (NHWC, tokens, class token), even if another model wraps it.
    Otherwise channels are dimension 1.
    """
    known = stages_of(model)
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    name = known.get(stage, stage)
    if name in modules:
        layout = _layout(model, name, modules[name])
        return Stage(name, modules[name], layout or (1, 0), layout is not None)
    from efdm.errors import SettingError  # imported late because only misspelled names need it
    from efdm.text import suggest

    close = suggest(stage, [*known, *modules], 3)
    hint = f" Did you mean {close}?" if close else ""
    presets = ", ".join(f"{s} ({m})" for s, m in known.items())
    children = ", ".join(name for name, _ in model.named_children())
    listed = f"stages of this {type(model).__name__}: {presets}" if known else f"top-level modules: {children}"
    problem = f"{type(model).__name__} has no stage {stage!r}.{hint}"
    raise SettingError(f"{problem} Choose from {listed}; any module name works", "stages")


def _layout(model: nn.Module, name: str, module: nn.Module) -> tuple[int, int] | None:
    """Return ``(channel_dim, prefix)`` of a module's output, or None if it is unknown.

    The layout is that of the nearest enclosing module of a known family: a model may wrap a backbone.
    """
    if isinstance(module, _CHANNELS_FIRST):
        return 1, 0
    parts = name.split(".")
    for depth in reversed(range(len(parts))):
        owner = model.get_submodule(".".join(parts[:depth]))
        family = family_of(owner)
        if family is not None and family.channel_dim is not None:
            if parts[depth] == family.stem:
                return 1, 0
            return family.channel_dim, 0 if parts[depth] == "patch_embed" else family.prefix(owner)
    return None


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode inside a ``with`` block, and restore the mode of every module afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _input_shape(model: nn.Module) -> tuple[int, int, int]:
    """Return the ``(channels, height, width)`` that a model was built for; models without a fixed size get 224 x 224."""
    config = (getattr(model, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224))  # timm
    built_for = getattr(getattr(model, "patch_embed", None), "img_size", None) or getattr(model, "image_size", None)
    size = config[1:] if built_for is None else (built_for, built_for) if isinstance(built_for, int) else built_for
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    return config[0] if first is None else first.in_channels, *size


@torch.no_grad()
def stages_at(model: nn.Module, strides: Sequence[int] = STRIDES) -> tuple[str, ...]:
    """Return the names of the last stages at the given strides, by default 4, 8 and 16, where the paper mixes a ResNet-18.

    A blank image is passed through the model to measure the strides. The result is empty for unknown families and for
    families of constant resolution (ViT).
    """
    family = family_of(model)
    if family is None:
        return ()
    heights, shape = dict[str, int](), _input_shape(model)
    height_dim = 1 if family.channel_dim == -1 else 2

    def measure(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim == 4:
            heights[name] = output.shape[height_dim]

    hooks = [model.get_submodule(name).register_forward_hook(partial(measure, name)) for name in family.stages(model)]
    try:
        like = next(model.parameters())
        with eval_mode(model):
            try:
                model(like.new_zeros(1, *shape))
            except RuntimeError:  # the model moves pixels into channels before its first convolution
                model(like.new_zeros(1, 3, *shape[1:]))
    finally:
        for hook in hooks:
            hook.remove()
    ends = {round(shape[1] / height): name for name, height in heights.items()}  # keeps the last stage at each stride
    return tuple(ends[stride] for stride in strides if stride in ends)
