"""Ways to make a picture of a content and a style: a trained network with a matcher and a strength, or an optimiser."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.models import NETWORKS, VGG
from efdm.models.weights import checksum, find, metadata, pretrained
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.style.optimise import OPTIMISERS, optimise
from efdm.style.stylizer import Stylizer

Share = Callable[[float], object]  # told how much of one picture is done, 0 to 1


@dataclass(frozen=True, eq=False)
class Way:
    """``run(content, style, share)`` makes a picture; ``told`` goes into the records and tells this way from others."""

    label: str
    told: Mapping[str, object]
    run: Callable[[Tensor, Tensor, Share], Tensor]


def untouched() -> Way:
    """The content as it is: no content is lost, and no style gained."""
    return Way("content untouched", {"kind": "untouched"}, lambda content, style, share: content)


def network_way(name: str, stylizer: Stylizer, *, method: str, strength: float = 1.0, weights: str = "") -> Way:
    """A trained network. ``weights`` (a checksum) keeps apart networks that were called the same at different times."""
    check_choice("method", method, tuple(MATCHERS))
    if not 0 <= strength <= 1:
        raise ValueError(f"strength={strength} is outside 0 (content) to 1 (style)")
    told = {"kind": "network", "model": name, "method": method, "strength": strength, "weights": weights}

    def run(content: Tensor, style: Tensor, share: Share) -> Tensor:
        return stylizer.stylize(content, style, method=method, strength=strength)

    return Way(f"{name} {method} {strength:g}", told, run)


def optimiser_way(method: str, encoder: VGG, *, iterations: int | None = None, weights: str = "") -> Way:
    """A row of `OPTIMISERS`. ``weights`` is a checksum of the encoder's."""
    check_choice("optimiser", method, tuple(OPTIMISERS))
    row = OPTIMISERS[method]
    steps = row.iterations if iterations is None else iterations
    told = {
        "kind": "optimiser", "model": f"optimiser {method}", "iterations": steps, "content_weight": row.content_weight,
        "encoder": encoder.name, "padding": encoder.padding, "pooling": encoder.pooling, "weights": weights,
    }  # fmt: skip

    def run(content: Tensor, style: Tensor, share: Share) -> Tensor:
        def tell(done: int, total: int, loss: float) -> None:
            share(done / total)

        return optimise(content, style, method, encoder, iterations=steps, progress=tell)

    return Way(f"optimiser {method} {steps}", told, run)


class Trained(NamedTuple):
    """A network to be measured: what to call it, ready for use, the matcher it was trained with, checksum of its file
    (and of its encoder's, where that was not the usual one)."""

    name: str
    stylizer: Stylizer
    method: str
    weights: str


Encoders = Mapping[str, "str | Path"]  # network ("vgg19") -> file of the encoder that its decoders are made for
NO_ENCODERS: Encoders = MappingProxyType({})


def open_pretrained(name: str, *, encoders: Encoders = NO_ENCODERS, device: str | torch.device = "cpu") -> Trained:
    """A model that `efdm.models.weights` knows. Files of ``encoders`` go before those that are looked up."""
    check_choice("model", name, tuple(NETWORKS))
    row = NETWORKS[name]
    made = pretrained(name, vgg=encoders.get(name))
    weights = _checksums(find(row.weights[row.matcher]), encoders.get(name))
    return Trained(name, Stylizer(made, device), row.matcher, weights)


def _checksums(*files: str | Path | None) -> str:
    return "+".join(checksum(file)[:12] for file in files if file is not None)


def open_trained(
    name: str, file: str | Path, *, encoders: Encoders = NO_ENCODERS, device: str | torch.device = "cpu"
) -> Trained:
    """A network of a training of one's own: the file says which network it is and which matcher it was trained with."""
    if not Path(file).is_file():
        raise ValueError(f"there is no file {file} for the network {name}")
    try:
        told = metadata(file)
        settings = json.loads(told.get("settings", "{}"))
        network, method = told["network"], settings["method"]
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file} does not say what it is; give a network.safetensors that `efdm train` wrote") from error
    check_choice("network", network, tuple(NETWORKS))
    made = pretrained(network, weights=file, vgg=encoders.get(network))
    weights = _checksums(file, encoders.get(network))
    return Trained(name, Stylizer(made, device), method, weights)
