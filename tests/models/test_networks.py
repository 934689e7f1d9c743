"""Every row of `NETWORKS`."""

from __future__ import annotations

import pytest
import torch
from training import randomize

from efdm.models import NETWORKS, StyleNetwork, build


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> StyleNetwork:
    torch.manual_seed(0)
    return randomize(build(request.param)).requires_grad_(False)


def test_unknown_network() -> None:
    with pytest.raises(ValueError, match=r"'huge'.*'vgg16'"):
        build("huge")


def test_features_after_every_stage(network: StyleNetwork) -> None:
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
def test_forward_preserves_odd_sizes(network: StyleNetwork, size: tuple[int, int]) -> None:
    assert network(torch.rand(1, 3, *size)).shape == (1, 3, *size)
