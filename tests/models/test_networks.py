from __future__ import annotations

import pytest
import torch
from torch import nn

from efdm.models import NETWORKS, StyleNetwork, build
from efdm.models.vgg import VGG


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> StyleNetwork:
    torch.manual_seed(0)
    made = build(request.param)
    for p in made.parameters():
        if p.dim() == 4:  # residual branches begin as nothing, and activations of deep layers nearly so
            nn.init.kaiming_normal_(p)
    return made.requires_grad_(False)


def test_unknown_networks_are_told() -> None:
    with pytest.raises(ValueError, match="'huge' is not a network; choose one of small, vgg16, vgg19"):
        build("huge")


def test_features_come_after_every_stage(network: StyleNetwork) -> None:
    images = torch.rand(1, 3, 40, 24)
    features = network.features(images)
    assert len(features) == len(network.stages) == len(network.strides) == len(network.receptive_field) - 1
    x = images
    for stage, found, stride in zip(network.stages, features, network.strides, strict=True):
        x = stage(x)
        assert torch.equal(found, x)
        assert found.shape[-2:] == (40 // stride, 24 // stride)
    assert torch.equal(network(images), network.decoder(x))


@pytest.mark.parametrize("size", [(1, 1), (9, 1), (3, 14), (33, 17)])
def test_forward_keeps_odd_sizes(network: StyleNetwork, size: tuple[int, int]) -> None:
    assert network(torch.rand(1, 3, *size)).shape == (1, 3, *size)


def test_nothing_is_seen_from_beyond_the_reach(network: StyleNetwork) -> None:
    """A part of the picture that starts at a multiple of 8, run alone, has the whole's values away from its cut."""
    x, at = torch.rand(1, 3, 16, 144), 32
    steps = [*zip(network.stages, network.receptive_field, (1, *network.strides), (*network.strides, 1), strict=False)]
    for module, reach, before, after in [*steps, (network.decoder, network.receptive_field[-1], network.strides[-1], 1)]:
        whole, part = module(x), module(x[..., at // before :])
        border = -(-reach // after)
        error = (whole[..., at // after :] - part).abs().amax((0, 1, 2)) / whole.abs().max()
        assert error[border:].max() < 1e-5, f"{module.__class__.__name__} sees further than {reach}"
        assert error[: border // 2 + 1].max() > 1e-3  # the cut is felt near it: the comparison means something
        x = whole


def test_vggs_are_one_stage_and_its_mirror() -> None:
    network = build("vgg16")
    (encoder,) = network.stages
    assert isinstance(encoder, VGG)
    assert (encoder.until, encoder.padding, encoder.pooling) == ("relu4_1", "reflect", "ceil")
    assert network.decoder.until == encoder.until
