"""Decoders that mirror a VGG."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from efdm.models import MirrorDecoder, load_decoder
from efdm.models.vgg import conv_names


def mirrored() -> nn.Sequential:
    """The decoder of pytorch-AdaIN for VGG-19; "up" stands for upsampling."""
    widths = [512, 256, "up", 256, 256, 256, 128, "up", 128, 64, "up", 64, 3]
    layers: list[nn.Module] = []
    inputs = widths[0]
    for width in widths[1:]:
        if width == "up":
            layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
        else:
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(inputs, width, 3), nn.ReLU()]
            inputs = width
    return nn.Sequential(*layers[:-1])


def test_vgg19_decoder_equals_the_published_one() -> None:
    whole = mirrored()
    decoder = load_decoder(MirrorDecoder("vgg19"), whole.state_dict())
    features = torch.randn(2, 512, 4, 5)
    with torch.no_grad():
        torch.testing.assert_close(decoder(features), whole(features))
    assert decoder(features).shape == (2, 3, 32, 40)


def test_vgg16_decoder_mirrors_vgg16() -> None:
    decoder = MirrorDecoder("vgg16", "relu3_2")
    found = [(c.in_channels, c.out_channels, up) for c, up in zip(decoder.convs, decoder.up_after, strict=True)]
    channels = [(256, 256), (256, 128), (128, 128), (128, 64), (64, 64), (64, 3)]
    assert found == [(*pair, up) for pair, up in zip(channels, (False, True, False, True, False, False), strict=True)]
    assert len(MirrorDecoder("vgg16").convs) == len(conv_names("vgg16", "relu4_1")) == 8


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda: mirrored().state_dict(), "a decoder of vgg16 from relu4_1: unexpected convs.8.weight"),
        (lambda: {f"{i}.weight": torch.zeros(3, 3, 3, 3) for i in range(8)}, "missing convs.0.bias"),
        (lambda: {f"layer.{i}.conv": torch.zeros(1) for i in range(8)}, "missing convs.0.weight"),
    ],
    ids=["other_vgg", "no_bias", "other_names"],
)
def test_wrong_checkpoints(state: Callable[[], dict[str, Tensor]], message: str) -> None:
    with pytest.raises(ValueError, match="checkpoint") as caught:
        load_decoder(MirrorDecoder("vgg16"), state())
    assert message in str(caught.value)
