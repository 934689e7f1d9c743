"""Networks for style transfer: a chain of stages, a picture's features after each, and a decoder at the end.

Whoever runs a network matches the features after every stage; the network itself knows nothing of matching.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import Tensor, nn

from efdm.models.small import Mixer, SmallDecoder, SmallEncoder
from efdm.models.vgg import VGG, MirrorDecoder


class StyleNetwork(nn.Module):
    """``stages`` lead from a picture to features, each from the one before; ``decoder`` leads back to a picture.

    Pictures are RGB in [0, 1]. ``strides`` says how many pixels a step of each stage's features is, ``reach`` how far,
    in pixels, a stage (or the decoder, last) can see: what tiles must overlap. The first stage is never trained
    together with the rest: the order of its features is what a match keeps of the content.
    """

    def __init__(
        self, name: str, stages: list[nn.Module], decoder: nn.Module, *, strides: tuple[int, ...], reach: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.name, self.strides, self.reach = name, strides, reach
        self.stages, self.decoder = nn.ModuleList(stages), decoder

    def features(self, images: Tensor) -> list[Tensor]:
        """Features after every stage, with nothing matched."""
        found: list[Tensor] = []
        x = images
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found

    def forward(self, images: Tensor) -> Tensor:
        """Encode and decode again, with nothing matched."""
        return self.decoder(self.features(images)[-1])[..., : images.shape[-2], : images.shape[-1]]


def _small() -> StyleNetwork:
    # reach: radii of the 3x3 convolutions in pixels, summed; bilinear upsampling adds one step of the eighth
    encoder = 1 + 1 + 2 + 4 + 4
    mixer = 4 + 8 + 8 + 8 + 8
    decoder = 4 + 4 + 2 + 1 + 1
    return StyleNetwork(
        "small", [SmallEncoder(), Mixer(), Mixer()], SmallDecoder(),
        strides=(4, 4, 4), reach=(encoder, mixer, mixer, decoder),
    )  # fmt: skip


def _vgg(name: str) -> StyleNetwork:
    def radius(names: tuple[str, ...]) -> int:
        return sum(2 ** (int(n[4]) - 1) for n in names)

    encoder = VGG(name)
    border = radius(encoder.names) + 8  # pooling and upsampling shift by less than one deep step
    return StyleNetwork(name, [encoder], MirrorDecoder(name), strides=(8,), reach=(border, border))


NETWORKS: Mapping[str, Callable[[], StyleNetwork]] = MappingProxyType({
    "small": _small,
    "vgg16": lambda: _vgg("vgg16"),
    "vgg19": lambda: _vgg("vgg19"),
})  # fmt: skip


def build(name: str) -> StyleNetwork:
    """A network with random weights; `efdm.models.weights` has trained ones."""
    if name not in NETWORKS:
        raise ValueError(f"{name!r} is not a network; choose one of {', '.join(NETWORKS)}")
    return NETWORKS[name]()
