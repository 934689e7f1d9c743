"""Every row of `NETWORKS`, and the layers of the small network."""

import pytest
import torch
import torch.nn.functional as F
from training import randomize

from efdm.models import NETWORKS, StyleNetwork, build, small
from efdm.models.small import WIDTHS, Conv, Mixer, Residual, SmallDecoder, SmallEncoder, UpConv


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> StyleNetwork:
    torch.manual_seed(0)
    return randomize(build(request.param)).requires_grad_(False)


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


def test_networks_have_documented_names_and_sizes() -> None:
    count = sum(p.numel() for p in build("small").parameters())
    assert f"{count / 1e6:.2f} million parameters" in (small.__doc__ or "")
    with pytest.raises(ValueError, match=r"'huge'.*'vgg16'"):
        build("huge")


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (2, 2), (5, 4)])
def test_upconv_equals_upsampling_and_convolution(size: tuple[int, int], device: torch.device) -> None:
    layer = UpConv(4, 6).to(device).double()
    x = torch.randn(2, 4, *size, device=device, dtype=torch.float64)
    repeated = F.interpolate(x, scale_factor=2.0, mode="nearest")
    expected = F.conv2d(F.pad(repeated, (1, 1, 1, 1), mode="reflect"), layer.weight, layer.bias)
    made, parameters = layer(x), (layer.weight, layer.bias)
    torch.testing.assert_close(made, expected)
    gradients = [torch.autograd.grad(output.square().sum(), parameters) for output in (made, expected)]
    torch.testing.assert_close(*gradients)


def test_convolutions_reflect_borders_and_residual_blocks_start_as_the_identity() -> None:
    for stride in (1, 2):
        layer, x = Conv(3, 5, stride), torch.randn(1, 3, 7, 6)
        expected = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), layer.weight, layer.bias, stride)
        torch.testing.assert_close(layer(x), expected)
    x = torch.randn(1, WIDTHS[2], 6, 5)
    assert torch.equal(Residual(WIDTHS[2])(x), x)
    assert torch.equal(Mixer()(x), x)


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (5, 4), (16, 13)])
def test_feature_sizes_are_rounded_up(size: tuple[int, int]) -> None:
    features = randomize(SmallEncoder())(torch.rand(2, 3, *size))
    quarter = tuple(-(-s // 4) for s in size)
    assert features.shape == (2, WIDTHS[2], *quarter)
    assert randomize(Mixer())(features).shape == features.shape
    assert randomize(SmallDecoder())(features).shape == (2, 3, *(4 * q for q in quarter))


def test_matched_features_have_both_signs() -> None:
    network = randomize(build("small"))
    for features in network.features(torch.rand(1, 3, 32, 32)):
        assert (features < 0).float().mean() > 0.1
        assert (features > 0).float().mean() > 0.1
