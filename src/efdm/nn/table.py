"""The table of feature layers that regularize training. Tasks insert them after the stages of a network with `mix_after`.

A new layer is a class in this package and one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from efdm.nn.dropblock import DropBlock
from efdm.nn.dsu import DSU
from efdm.nn.layer import FeatureLayer
from efdm.nn.mix import CrossNorm, FeatureMix
from efdm.nn.noise import DistributionNoise
from efdm.nn.pairing import Pairing


@dataclass(frozen=True)
class LayerRow:
    """One row of `LAYERS`.

    Args:
        make: called with ``generator`` and all options.
        options: all options with their defaults.
        pairing: how samples of a batch are paired.
        min_batch: the smallest batch in which the layer has an effect.
    """

    name: str
    about: str
    source: str
    make: Callable[..., FeatureLayer] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    pairing: Pairing = "random"
    min_batch: int = 2


_EFDM = "Zhang et al., CVPR 2022"
_MIXSTYLE = "Zhou et al., ICLR 2021"
_MIX = {"p": 0.5, "alpha": 0.1}  # MixStyle and EFDM papers


def _mix(name: str, about: str, source: str, matcher: str, pairing: Pairing = "random", **settings: Any) -> LayerRow:
    """Return a row that mixes features within the batch by a matcher of `MATCHERS`."""
    return LayerRow(name, about, source, partial(FeatureMix, method=matcher, pairing=pairing, **settings), _MIX, pairing)


_ROWS = (
    _mix("mixstyle", "means and standard deviations mixed with a random sample's", _MIXSTYLE, "adain"),
    _mix("mixstyle-flow", "MixStyle with gradient to the style", "ours", "adain", style_grad="flow"),
    _mix("mixstyle-labels", "MixStyle with a sample of another domain", _MIXSTYLE, "adain", "crossdomain"),
    _mix("mixstyle-halves", "MixStyle with the authors' pairing of half batches", _MIXSTYLE, "adain", "halves"),
    _mix("efdmix", "whole distributions mixed with a random sample's, without gradient to the style", _EFDM, "efdm"),
    _mix(
        "efdmix-flow", "EFDMix with gradient to the style, the default of the layer EFDMix", f"{_EFDM}, authors' code",
        "efdm", style_grad="flow",
    ),
    _mix("efdmix-labels", "EFDMix with a sample of another domain", _EFDM, "efdm", "crossdomain"),
    _mix(
        "efdmix-labels-flow", "EFDMix with a sample of another domain, with gradient to the style",
        f"{_EFDM}, authors' code", "efdm", "crossdomain", style_grad="flow",
    ),
    _mix("efdmix-halves", "EFDMix with the authors' pairing of half batches", _EFDM, "efdm", "halves"),
    _mix(
        "efdmix-halves-flow", "EFDMix as in the authors' code: half batches, with gradient to the style",
        f"{_EFDM}, authors' code", "efdm", "halves", style_grad="flow",
    ),
    _mix(
        "efdmix-joint", "EFDMix of all channels jointly, along rotated axes", "ours", "joint", rotations=1, start="none",
    ),
    # the study of orders; its AdaIN is mixstyle, its EFDM is efdmix
    _mix("adamean", "means mixed", f"{_EFDM}, study of orders", "adamean"),
    _mix("adastd", "standard deviations mixed", f"{_EFDM}, study of orders", "adastd"),
    _mix("hm", "histogram matching mixed, ties merged", f"{_EFDM}, study of orders", "hm"),
    # the study of tie rules; efdmix uses the rule "fast"
    _mix("efdmix-stable", "EFDMix, ties ordered by position", f"{_EFDM}, study of ties", "efdm", ties="stable"),
    _mix("efdmix-random", "EFDMix, ties ordered at random", f"{_EFDM}, study of ties", "efdm", ties="random"),
    _mix("efdmix-neighbor", "EFDMix, ties ordered by neighbours", f"{_EFDM}, study of ties", "efdm", ties="neighbor"),
    LayerRow(
        "dsu", "Gaussian noise on means and standard deviations, with their spread in the batch", "Li et al., ICLR 2022",
        DSU, {"p": 0.5},  # paper and published code
    ),
    LayerRow(
        "distribution-noise", "Gaussian noise on whole distributions, with their covariance in the batch", "ours",
        DistributionNoise, {"p": 0.5, "strength": 1.0, "style_grad": "flow", "draws": "joint", "axes": "channels"},
    ),
    LayerRow(
        "crossnorm", "means and standard deviations exchanged with a random sample's", "Tang et al., ICCV 2021",
        CrossNorm, {"p": 0.5},  # published code, ImageNet
    ),
    LayerRow(
        "dropblock", "contiguous blocks of features set to zero", "Ghiasi et al., NeurIPS 2018",
        DropBlock, {"p": 0.1, "block": 7}, min_batch=1,  # paper, ResNet-50: keep_prob 0.9, block_size 7
    ),
)  # fmt: skip

LAYERS: Mapping[str, LayerRow] = {row.name: row for row in _ROWS}
