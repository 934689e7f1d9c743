"""Style-transfer networks: one row of `NETWORKS` describes how a network is built, trained and loaded.

A network is a chain of stages followed by a decoder. The caller matches the features after every stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from efdm.models.small import Mixer, SmallDecoder, SmallEncoder
from efdm.models.vgg import VGG, MirrorDecoder, conv_names
from efdm.ops.choices import check_choice


@dataclass(frozen=True)
class NetworkSpec:
    """A row of `NETWORKS`.

    ``strides[i]`` is the stride of the features after stage ``i``, in pixels of the image. ``receptive_field[i]`` is the
    radius, in pixels, that stage ``i`` needs around a position; the last entry is the decoder's. Tiles overlap by this
    radius and start at multiples of ``max_stride``, the largest stride inside the network.
    """

    name: str
    build: Callable[[], tuple[list[nn.Module], nn.Module]]  # stages and decoder with random weights
    strides: tuple[int, ...]
    receptive_field: tuple[int, ...]
    objective: str = "perceptual"  # row of `efdm.style.objective.OBJECTIVES`
    recipe: Mapping[str, Any] = field(default_factory=dict)  # training settings that differ from the defaults
    weights: str = ""  # row of `efdm.models.weights.WEIGHTS`
    max_stride: int = 0  # 0: the least common multiple of ``strides``
    matcher: str = "efdm"  # row of `MATCHERS` that the weights were trained with
    tolerance: float = 0.0  # default tolerance of `efdm.ops.efdm` in style transfer
    encoder: str = ""  # row of `WEIGHTS` for a frozen encoder; such a network stores only its decoder


class StyleNetwork(nn.Module):
    """A chain of ``stages`` from RGB images in [0, 1] to features, and a ``decoder`` back to images.

    The first stage is frozen while the rest is trained, because a match preserves only the order of the content's features.
    """

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.name, self.strides, self.receptive_field = spec.name, spec.strides, spec.receptive_field
        self.max_stride, self.tolerance = spec.max_stride or math.lcm(*spec.strides), spec.tolerance
        stages, decoder = spec.build()
        self.stages, self.decoder = nn.ModuleList(stages), decoder

    def features(self, images: Tensor) -> list[Tensor]:
        """Return the unmatched features after every stage."""
        features: list[Tensor] = []
        for stage in self.stages:
            features.append(stage(features[-1] if features else images))
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Encode and decode images without matching."""
        return self.decoder(self.features(images)[-1])[..., : images.shape[-2], : images.shape[-1]]


def _vgg_radius(name: str) -> int:
    # each 3x3 convolution adds the stride of its block; pooling and upsampling shift by less than the last stride
    return sum(2 ** (int(conv[4]) - 1) for conv in conv_names(name, "relu4_1")) + 8


# radii of the small network: sums over its 3x3 convolutions; bilinear upsampling adds one position at stride 8
ENCODER, MIXER, DECODER = 1 + 1 + 2 + 4 + 4, 4 + 8 + 8 + 8 + 8, 4 + 4 + 2 + 1 + 1

NETWORKS: Mapping[str, NetworkSpec] = {
    row.name: row
    for row in (
        NetworkSpec(
            "small", lambda: ([SmallEncoder(), Mixer(), Mixer()], SmallDecoder()),
            strides=(4, 4, 4), receptive_field=(ENCODER, MIXER, MIXER, DECODER), objective="perceptual",
            recipe={
                "lr": 6e-4, "schedule": "warmup-cosine", "weight_decay": 1e-4, "ema_decay": 0.999, "max_grad_norm": 50.0,
                "style_weight": 50.0, "sliced_weight": 12.0, "identity_weight": 30.0, "reconstruct": 2500,
                "iterations": 28_000,
            },
            weights="small", max_stride=8,
            tolerance=0.3,  # flat areas vary at most twice as much as with AdaIN: benchmarks/results/hard-pairs.json
        ),
        NetworkSpec(
            "vgg16", lambda: ([VGG("vgg16")], MirrorDecoder("vgg16")),
            strides=(8,), receptive_field=(_vgg_radius("vgg16"),) * 2, objective="paper",
            recipe={"style_weight": 8.0},  # chosen among 2, 4 and 8: results/style/style-weight
            weights="vgg16-efdm", encoder="vgg16",
        ),
        NetworkSpec(
            "vgg19", lambda: ([VGG("vgg19")], MirrorDecoder("vgg19")),
            strides=(8,), receptive_field=(_vgg_radius("vgg19"),) * 2, objective="paper", recipe={},
            weights="vgg19-efdm", encoder="vgg19-normalized",
        ),
    )
}  # fmt: skip


def build(name: str) -> StyleNetwork:
    """Build a network with random weights. `efdm.models.weights.pretrained` returns a trained one."""
    check_choice("name", name, NETWORKS)
    return StyleNetwork(NETWORKS[name])
