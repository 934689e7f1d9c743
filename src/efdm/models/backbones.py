"""Classifiers to generalise with: any of timm's by name, and two of our own; with random weights, timm's, or a file's."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from efdm.models.compat import allow_torchvision
from efdm.models.tiny import Tiny
from efdm.models.vgg import CONVS_PER_BLOCK, WIDTHS
from efdm.models.weights import MissingWeights, checksum_once, folders, read
from efdm.text import suggest

State = dict[str, Tensor]
NAMED = ("random", "timm")  # weights that are no file
TIMEOUT = 5  # seconds that a hub has to answer
PREFIXES = ("module.", "model.", "backbone.")  # what wrappers put before names


class PlainVGG(nn.Module):
    """A VGG's convolutions, the means of its last features, and one linear layer.

    Its own classifier has more weights than all convolutions together, and is rarely at hand. Every stage ends with its
    pooling, as timm's presets for VGG do. Takes pictures normalised with ImageNet's mean and standard deviation.
    """

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        inputs = 3
        for number, (convs, width) in enumerate(zip(CONVS_PER_BLOCK[name], WIDTHS, strict=True), 1):
            layers: list[nn.Module] = []
            for _ in range(convs):
                conv = nn.Conv2d(inputs, width, 3, padding=1)
                # without normalisation, torch's own beginning fades out over thirteen layers
                nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
                layers += [conv, nn.ReLU(inplace=True)]
                inputs = width
            self.add_module(f"stage{number}", nn.Sequential(*layers, nn.MaxPool2d(2)))
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = images
        for number in range(1, len(WIDTHS) + 1):
            features = self.get_submodule(f"stage{number}")(features)
        return self.classifier(features.mean((2, 3)))


def _stages_of_features(state: State) -> State:
    """torchvision's and timm's ``features.N`` under the names of `PlainVGG`; their large classifiers are left out."""
    if not any(key.startswith("features.") for key in state):
        return state
    others = ("classifier.", "pre_logits.", "head.")
    renamed = {key: value for key, value in state.items() if not key.startswith(("features.", *others))}
    numbered = {(int(k.split(".")[1]), k.split(".")[2]): v for k, v in state.items() if k.startswith("features.")}
    stage, begin, before = 1, 0, -2
    for (number, kind), value in sorted(numbered.items(), key=lambda item: item[0]):
        if number > before + 2:  # a convolution and its ReLU are two numbers, a pooling is one more
            stage, begin = stage + 1, number
        renamed[f"stage{stage}.{number - begin}.{kind}"] = value
        before = number
    return renamed


@dataclass(frozen=True)
class Own:
    """A row: a network of ours, and how checkpoints of others are called in it."""

    about: str
    build: Callable[[int], nn.Module]
    rename: Callable[[State], State] = lambda state: state


OWN: Mapping[str, Own] = MappingProxyType({
    "tiny": Own("six convolutions, for the digits of 32 pixels", Tiny),
    "vgg16-gap": Own(
        "VGG-16's convolutions and one linear layer", lambda classes: PlainVGG("vgg16", classes), _stages_of_features
    ),
})  # fmt: skip


def build_backbone(name: str, classes: int, *, weights: str | os.PathLike[str] = "random") -> nn.Module:
    """A classifier whose output is ``(b, classes)``.

    ``name`` is a row of `OWN` or any model of timm. ``weights`` is ``"random"`` (from torch's own generator), ``"timm"``
    (timm's, which it may download), or a file of safetensors or tensors alone: its path, or its name in one of the folders
    where `efdm.models.weights` looks. A file may lack the classifier or have one for other classes, which then begins
    anew; nothing else may be missing or left over. Half precision becomes float32.
    """
    if classes < 1:
        raise ValueError(f"classes={classes}; a classifier needs at least one")
    own = OWN.get(name)
    if weights == "timm":
        if own is not None:
            raise ValueError(f"{name} is not one of timm's models and has no weights there; use 'random' or a file")
        model = _of_timm(name, classes, pretrained=True)
        if classes != getattr(model, "pretrained_cfg", {}).get("num_classes"):
            _begin_anew(model)
        return model
    model = _of_timm(name, classes) if own is None else own.build(classes)
    if weights != "random":
        file = _find(weights)
        state = _without_prefixes(read(file), model.state_dict())
        _fill(model, state if own is None else own.rename(state), f"{file.name} for {name}")
    return model


def _of_timm(name: str, classes: int, pretrained: bool = False) -> nn.Module:
    allow_torchvision()
    try:
        import timm
    except ImportError as error:
        known = ", ".join(OWN)
        raise ImportError(f"{name} is looked for in timm, which is not here; pip install timm (ours: {known})") from error
    if not timm.is_model(name):
        close = suggest(name, [*OWN, *timm.list_models()], 3)
        hint = f"; did you mean {close}?" if close else ""
        raise ValueError(f"{name!r} is no model of timm {timm.__version__}, and not one of {', '.join(OWN)}{hint}")
    try:
        with _patience() if pretrained else nullcontext():
            return timm.create_model(name, pretrained=pretrained, num_classes=classes)
    except Exception as error:
        if not pretrained:
            raise
        # timm passes on whatever its downloader, its cache or its reader of files raises
        raise MissingWeights(
            f"timm could not load its weights of {name} ({type(error).__name__}: {error}); get the file yourself and give "
            "its path as weights, or begin with 'random'"
        ) from error


@contextmanager
def _patience() -> Iterator[None]:
    """Where timm's hub does not answer once, its cache alone is looked at: it would be asked for a minute otherwise."""
    try:
        from huggingface_hub import constants
    except ImportError:  # timm will say so
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=TIMEOUT).close()
    except urllib.error.HTTPError:
        return True  # whatever it was, somebody is there
    except OSError:
        return False
    return True


# --- weights from a file ---------------------------------------------------------------------------------------------


def weights_checksum(weights: str | os.PathLike[str]) -> str:
    """Twelve letters of the sha256 of a file of weights, which its name may hide: every training of ours leaves a
    ``model.safetensors``. Nothing for ``"random"`` and ``"timm"``, nor for a file that is not there."""
    if weights in NAMED:
        return ""
    try:
        return checksum_once(_find(weights))[:12]
    except MissingWeights:
        return ""


def _find(weights: str | os.PathLike[str]) -> Path:
    for place in (Path(weights), *(folder / weights for folder in folders())):
        if place.is_file():
            return place
    raise MissingWeights(
        f"weights={os.fspath(weights)!r} is no file, here or in {folders()[0]}; give 'random', 'timm', or the path of a "
        "checkpoint"
    )


def _without_prefixes(state: State, wanted: Collection[str]) -> State:
    def bare(key: str) -> str:
        while key not in wanted and key.startswith(PREFIXES):
            key = key.split(".", 1)[1]
        return key

    return {bare(key): value for key, value in state.items()}


def _fill(model: nn.Module, state: State, what: str) -> None:
    own = model.state_dict()
    heads = tuple(f"{head}." for head in _classifiers(model))
    fits = {k: k in state and state[k].shape == v.shape for k, v in own.items()}
    # whole or not at all: a new weight beside the bias of another task would be neither
    anew = not all(fits[k] for k in own if k.startswith(heads))
    state = {k: v for k, v in state.items() if not (anew and k.startswith(heads))}
    # counters of old checkpoints, which only a running mean without momentum looks at
    missing = [k for k in own if k not in state and not k.startswith(heads) and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    if missing or unexpected:
        parts = [f"has no {_some(missing)}"] * bool(missing) + [f"has {_some(unexpected)} too many"] * bool(unexpected)
        raise ValueError(
            f"{what}: the checkpoint {' and '.join(parts)}; is it of another model, or of another library with other names?"
        )
    if wrong := [k for k, v in state.items() if v.shape != own[k].shape]:
        key = wrong[0]
        raise ValueError(
            f"{what}: {key} is {tuple(state[key].shape)} in the checkpoint and {tuple(own[key].shape)} in the model"
            f"{f', and {len(wrong) - 1} more differ' if len(wrong) > 1 else ''}; is it a model of another size?"
        )
    model.load_state_dict({**own, **state})  # into tensors of the model's own type
    if anew:
        _begin_anew(model)


def _begin_anew(model: nn.Module) -> None:
    """Classifiers on top of trained features begin small, as torch's own layers do.

    timm draws those of MobileNets and EfficientNets from +-1/sqrt(classes), which is meant for a thousand of them: with
    seven, the first loss is 4 instead of log 7, and its gradients wash out what the features know.
    """
    for layer in (layer for name in _classifiers(model) for layer in model.get_submodule(name).modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.reset_parameters()


def _classifiers(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers that know the classes: timm tells its own."""
    told: Any = getattr(model, "pretrained_cfg", {}).get("classifier") or "classifier"
    return (told,) if isinstance(told, str) else tuple(told)


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
