from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from efdm.models import build
from efdm.models.small import WIDTHS, Conv, Mixer, Residual, SmallDecoder, SmallEncoder, UpConv

SIZES = [(1, 1), (1, 6), (2, 3), (5, 4), (7, 9), (16, 13)]


def awake(module: nn.Module) -> nn.Module:
    """Residual branches begin as nothing; give them something to do."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1)
    return module


def test_at_most_three_million_parameters() -> None:
    assert sum(p.numel() for p in build("small").parameters()) < 3_000_000


@pytest.mark.parametrize("size", [(1, 1), (1, 3), (2, 2), (5, 4)])
def test_upconv_is_a_mirrored_convolution_of_repeated_values(size: tuple[int, int], device: torch.device) -> None:
    layer = UpConv(4, 6).to(device).double()
    x = torch.randn(2, 4, *size, device=device, dtype=torch.float64)
    repeated = F.interpolate(x, scale_factor=2.0, mode="nearest")
    expected = F.conv2d(F.pad(repeated, (1, 1, 1, 1), mode="reflect"), layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), expected)


def test_upconv_has_the_gradients_of_the_slow_one() -> None:
    layer = UpConv(2, 3).double()
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    wanted = torch.randn(1, 3, 6, 8, dtype=torch.float64)
    found = torch.autograd.grad((layer(x) * wanted).sum(), [layer.weight, layer.bias])
    slow = F.conv2d(F.pad(F.interpolate(x, scale_factor=2.0), (1, 1, 1, 1), mode="reflect"), layer.weight, layer.bias)
    expected = torch.autograd.grad((slow * wanted).sum(), [layer.weight, layer.bias])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_conv_mirrors_its_borders(stride: int) -> None:
    layer, x = Conv(3, 5, stride), torch.randn(1, 3, 7, 6)
    expected = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), layer.weight, layer.bias, stride)
    torch.testing.assert_close(layer(x), expected)


def test_residual_steps_begin_as_the_identity() -> None:
    x = torch.randn(1, WIDTHS[2], 6, 5)
    assert torch.equal(Residual(WIDTHS[2])(x), x)
    assert torch.equal(Mixer()(x), x)


@pytest.mark.parametrize("size", SIZES)
def test_features_are_a_quarter_rounded_up_and_mixers_keep_them(size: tuple[int, int]) -> None:
    features = awake(SmallEncoder())(torch.rand(2, 3, *size))
    quarter = tuple(-(-s // 4) for s in size)
    assert features.shape == (2, WIDTHS[2], *quarter)
    assert awake(Mixer())(features).shape == features.shape
    assert awake(SmallDecoder())(features).shape == (2, 3, *(4 * q for q in quarter))


@pytest.mark.parametrize("size", SIZES)
def test_a_picture_of_any_size_comes_back_at_its_size(size: tuple[int, int]) -> None:
    network = awake(build("small"))
    picture = torch.rand(1, 3, *size, requires_grad=True)
    output = network(picture)
    assert output.shape == picture.shape
    output.sum().backward()
    assert picture.grad is not None
    assert picture.grad.isfinite().all()


def test_matched_features_are_not_behind_a_relu() -> None:
    network = awake(build("small"))
    for features in network.features(torch.rand(1, 3, 32, 32)):
        assert (features < 0).float().mean() > 0.1
        assert (features > 0).float().mean() > 0.1
