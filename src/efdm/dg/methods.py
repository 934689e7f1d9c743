"""The table of domain-generalization methods.

A new method is a row of `efdm.nn.LAYERS`, or a class in `dg/batch.py` or `dg/penalties.py` and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from efdm.dg.batch import CutMix, Cutout, Mixup
from efdm.dg.penalties import Coral
from efdm.nn import LAYERS, ManifoldMixup, mix_after
from efdm.recognition.methods import LAYER_METHODS, Change, Method, Parts, options_of, unchanged


def _batch_change(change: Callable[..., Change]) -> Callable[..., Parts]:
    return lambda stages, generator, **options: Parts(change=change(generator=generator, **options))


def _after_first(first: str, others: str) -> Callable[..., Parts]:
    """Return a `Method.make` that inserts one row of `LAYERS` after the first stage and another after the other stages."""

    def make(stages: int, generator: torch.Generator | None, **options: Any) -> Parts:
        one, other = (LAYERS[name].make(generator=generator, **options) for name in (first, others))
        return Parts([one, *[other] * (stages - 1)])

    return make


def _manifold_mixup(stages: int, generator: torch.Generator | None, **options: Any) -> Parts:
    mixup = ManifoldMixup(stages, generator=generator, **options)
    return Parts(mixup.layers, mixup)


_ROWS = (
    *LAYER_METHODS.values(),
    Method(
        "efdmix-noise-flow", "EFDMix with gradient to the style after the first stage, distribution noise after the others",
        "ours", _after_first("efdmix-flow", "distribution-noise"), {"p": 0.5}, min_batch=2,
    ),
    Method(
        "noise-efdmix-flow", "distribution noise after the first stage, EFDMix with gradient to the style after the others",
        "ours", _after_first("distribution-noise", "efdmix-flow"), {"p": 0.5}, min_batch=2,
    ),
    Method(
        "coral", "penalty on differences between the domains' feature means and covariances",
        "Sun and Saenko, ECCVW 2016; DomainBed", lambda stages, generator, **options: Parts(penalty=Coral(**options)),
        {"gamma": 1.0}, min_batch=2, domains=(2, inf),
    ),
    Method(
        "mixup", "pictures and targets averaged in pairs", "Zhang et al., ICLR 2018",
        _batch_change(Mixup), {"p": 1.0, "alpha": 0.2}, min_batch=2,  # paper, ImageNet: alpha from 0.1 to 0.4
    ),
    Method(
        "manifold-mixup", "pictures or features of one stage, and targets, averaged in pairs", "Verma et al., ICML 2019",
        _manifold_mixup, {"p": 1.0, "alpha": 2.0}, min_batch=2,  # published code, CIFAR
    ),
    Method(
        "cutmix", "a rectangle replaced by another picture's, targets mixed by area", "Yun et al., ICCV 2019",
        _batch_change(CutMix), {"p": 1.0, "alpha": 1.0}, min_batch=2,  # paper, ImageNet
    ),
    Method(
        "cutout", "a square of every picture set to zero", "DeVries and Taylor, 2017",
        _batch_change(Cutout), {"p": 1.0, "side": 0.5},  # paper, CIFAR-10
    ),
)  # fmt: skip

METHODS: Mapping[str, Method] = {row.name: row for row in _ROWS}


def attach(
    method: str, model: nn.Module, stages: Sequence[str], *, generator: torch.Generator | None = None, **options: Any
) -> Parts:
    """Insert a method's layers into a model and return its parts; the training loop calls ``change`` and ``penalty``.

    ``stages`` are passed to `mix_after`, ``options`` to the method. Random numbers are drawn on the tensors' device from
    ``generator``, which defaults to PyTorch's global generator. In eval mode neither layers nor ``change`` have an effect.

    >>> import torch
    >>> from efdm.dg import attach
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    >>> parts = attach("mixup", model, ["1"], alpha=0.4)
    >>> images, targets = parts.change(torch.rand(4, 3, 16, 16), torch.eye(4))
    """
    chosen = options_of(method, options, METHODS)
    parts = METHODS[method].make(len(stages), generator, **chosen)
    if parts.layers is not None:
        mix_after(model, stages, parts.layers)
    if parts.change is unchanged:
        return parts

    def in_training(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return parts.change(images, targets) if model.training else (images, targets)

    return parts._replace(change=in_training)
