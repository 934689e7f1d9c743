"""A VGG-16 of full depth with few channels, for fast tests."""

from __future__ import annotations

from unittest import mock

import torch
from torch import nn

from efdm.models import VGG
from efdm.models import vgg as module


def slim_vgg(padding: str = "zeros", pooling: str = "floor", *, width: int = 8, until: str = "relu5_1") -> VGG:
    """Return a frozen VGG with fixed random weights that preserve the scale of activations."""
    with mock.patch.object(module, "WIDTHS", (width,) * 5):
        encoder = VGG("vgg16", until, padding=padding, pooling=pooling)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name in encoder.names:
            conv = encoder.get_submodule(name)
            assert isinstance(conv, nn.Conv2d)
            filters = torch.randn(conv.weight.shape, generator=generator) * (2 / (9 * conv.in_channels)) ** 0.5
            # zero mean, because inputs are positive and a channel would otherwise be active always or never
            conv.weight.copy_(filters - filters.mean((1, 2, 3), keepdim=True))
            conv.bias.copy_(torch.rand(width, generator=generator) * 0.2)  # type: ignore[union-attr]
    return encoder.eval().requires_grad_(False)
