"""Candidates for an evaluation: a trained network with a matcher and a strength, or an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.models import NETWORKS, VGG
from efdm.models.weights import WEIGHTS, checksum, describe, find, load_encoder, pretrained
from efdm.ops.choices import check_choice
from efdm.progress import Report
from efdm.style.optimize import OPTIMIZERS, optimize
from efdm.style.options import StylizeOptions
from efdm.style.pipeline import match_options
from efdm.style.stylizer import Stylizer


@dataclass(frozen=True, eq=False)
class Candidate:
    """``run(content, style, progress)`` returns a stylized image. ``metadata`` identifies the candidate in records."""

    label: str
    metadata: Mapping[str, object]
    run: Callable[[Tensor, Tensor, Report], Tensor]


def unchanged() -> Candidate:
    """Return a candidate that returns the content itself: a baseline without content loss and without style."""
    return Candidate("unchanged content", {"kind": "unchanged"}, lambda content, style, progress: content)


def network_candidate(name: str, stylizer: Stylizer, *, method: str, strength: float = 1.0, weights: str = "") -> Candidate:
    """Return a trained network as a candidate. ``weights`` is a checksum that distinguishes networks of the same name."""
    options = StylizeOptions(method=method, strength=strength)

    def run(content: Tensor, style: Tensor, progress: Report) -> Tensor:
        return stylizer.stylize(content, style, options=options)

    identity = {"kind": "network", "model": name, "method": method, "strength": strength, "weights": weights}
    identity |= match_options(stylizer.network, method)  # the tolerance, if any
    return Candidate(f"{name} {method} {strength:g}", identity, run)


def optimizer_candidate(method: str, encoder: VGG, *, iterations: int | None = None, weights: str = "") -> Candidate:
    """Return a row of `OPTIMIZERS` as a candidate. ``weights`` is the checksum of the encoder's weights."""
    check_choice("optimizer", method, tuple(OPTIMIZERS))
    row = OPTIMIZERS[method]
    steps = row.iterations if iterations is None else iterations

    def run(content: Tensor, style: Tensor, progress: Report) -> Tensor:
        return optimize(content, style, method, encoder, iterations=steps, progress=progress)

    identity = {
        "kind": "optimizer", "model": f"optimizer {method}", "iterations": steps, "content_weight": row.content_weight,
        "encoder": encoder.name, "padding": encoder.padding, "pooling": encoder.pooling, "weights": weights,
    }  # fmt: skip
    return Candidate(f"optimizer {method} {steps}", identity, run)


class LoadedNetwork(NamedTuple):
    """A network to evaluate, the matcher it was trained with, and the checksums of its files."""

    name: str
    stylizer: Stylizer
    method: str
    weights: str


Files = Mapping[str, "str | Path"]
NO_FILES: Files = {}


def user_encoder(network: str, vgg: str | Path | None) -> str | Path | None:
    """Return the file ``vgg`` for a network whose encoder is not part of the package, otherwise None."""
    encoder = NETWORKS[network].encoder
    return vgg if encoder and WEIGHTS[encoder].place == "user" else None


def load_stylizer(
    name: str, file: str | Path | None = None, *, vgg: str | Path | None = None, device: str | torch.device = "cpu"
) -> LoadedNetwork:
    """Load a row of `NETWORKS`, or a ``file`` written by a training run, or pytorch-AdaIN's decoder.pth for VGG-19.

    ``vgg`` is the file of an encoder that is not part of the package.
    """
    if file is None:
        check_choice("model", name, tuple(NETWORKS))
    stored = (name, NETWORKS[name].matcher) if file is None else describe(file)
    if stored is None:
        raise ValueError(f"{file} has no network metadata; expected the network.safetensors of a training run")
    network, method = stored
    encoder = user_encoder(network, vgg)
    stylizer = Stylizer(pretrained(network, weights=file, vgg=encoder), device)
    return LoadedNetwork(name, stylizer, method, _checksums(file or find(NETWORKS[network].weights), encoder))


def load_candidates(
    models: Sequence[str] = (),
    networks: Files = NO_FILES,
    *,
    methods: Sequence[str] = (),
    strengths: Sequence[float] = (1.0,),
    optimizers: Sequence[str] = (),
    iterations: int | None = None,
    vgg: str | Path | None = None,
    device: str | torch.device = "cpu",
) -> list[Candidate]:
    """Return the unchanged content, every network with every method and strength, and the optimizers.

    Args:
        models: rows of `NETWORKS`.
        networks: name -> file written by a training run.
        methods: defaults to the matcher that each network was trained with.
        iterations: of the optimizers; defaults to those of each row of `OPTIMIZERS`.
        vgg: file of VGG-16, for the optimizers and networks that use it.
    """
    named = [*((name, None) for name in dict.fromkeys(models)), *networks.items()]
    loaded = [load_stylizer(name, file, vgg=vgg, device=device) for name, file in named]
    candidates = [unchanged()]
    for name, stylizer, own, weights in loaded:
        for method, s in product(dict.fromkeys(methods or [own]), dict.fromkeys(strengths)):
            candidates.append(network_candidate(name, stylizer, method=method, strength=s, weights=weights))
    if optimizers:
        # zero padding and floor pooling, as in the metrics and in the training of VGG-16
        encoder = load_encoder("vgg16", "relu5_1", path=vgg, padding="zeros", pooling="floor").requires_grad_(False)
        encoder = encoder.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        weights = _checksums(find("vgg16", vgg))
        for name in dict.fromkeys(optimizers):
            candidates.append(optimizer_candidate(name, encoder, iterations=iterations, weights=weights))
    return candidates


def _checksums(*files: str | Path | None) -> str:
    return "+".join(checksum(file)[:12] for file in files if file is not None)
