"""DSU as a layer: Gaussian noise on the mean and standard deviation of every channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from efdm.nn import draw
from efdm.nn.layer import FeatureLayer, check_ranges
from efdm.ops.layout import from_rows, to_rows
from efdm.ops.moments import mean_and_variance


def perturbed(features: Tensor, mean_noise: Tensor, std_noise: Tensor, *, eps: float = 1e-6, channel_dim: int = 1) -> Tensor:
    r"""Compute :math:`(x-\mu)/s\,(s+n_s\Sigma_s)+\mu+n_\mu\Sigma_\mu` for noise :math:`n_\mu, n_s` of shape ``(b, c)``.

    :math:`\Sigma_\mu, \Sigma_s` are the standard deviations, over the batch, of the samples' means and standard deviations.
    Zero noise returns the features exactly. Gradients flow through all statistics, as in the published code.
    """
    rows = to_rows(features, "features", channel_dim)
    x = rows.values if features.dtype == torch.float64 else rows.values.float()
    mean, variance = (s.squeeze(-1) for s in mean_and_variance(x, (-1,)))
    std = (variance + eps).sqrt()
    mean_spread, std_spread = ((s.var(0) + eps).sqrt() for s in (mean, std))
    # x * scale + shift is exact without noise; zeros are selected because statistics of infinities are NaN
    grows = torch.where(std_noise == 0, 0.0, std_noise * std_spread / std)
    shift = torch.where((mean_noise == 0) & (std_noise == 0), 0.0, mean_noise * mean_spread - mean * grows)
    out = torch.addcmul(shift.unsqueeze(-1), x, (1 + grows).unsqueeze(-1))
    return from_rows(out.to(features.dtype), features, channel_dim)


class DSU(FeatureLayer):
    """Domain shifts with uncertainty (Li et al., ICLR 2022): add Gaussian noise to the statistics of every sample.

    The scale of the noise is the standard deviation of these statistics over the batch, so a batch of one stays unchanged.
    The published code inserts the layer at six places of a ResNet (after the first convolution, the pooling and all four
    stages), each with its own gate.

    Args:
        p: probability that a call adds noise.
        eps: added to variances.
        settings: ``channel_dim``, ``prefix`` and ``generator`` of `FeatureLayer`.

    >>> import torch
    >>> from efdm import DSU
    >>> layer = DSU(p=1.0)
    >>> layer
    DSU(p=1.0, eps=1e-06)
    >>> layer(torch.rand(8, 16, 14, 14)).shape
    torch.Size([8, 16, 14, 14])
    """

    def __init__(
        self,
        p: float = 0.5,  # DSU paper and published code
        *,
        eps: float = 1e-6,  # published code
        **settings: Any,
    ) -> None:
        super().__init__(p, **settings)
        check_ranges(eps=eps)
        self.eps = eps

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        batch, channels, device = features.shape[0], features.shape[channel_dim], features.device
        gate = draw.gate(self.p, device, self.generator)
        noise = draw.normal(2, batch, channels, device=device, generator=self.generator)
        if batch == 1 or draw.closed(gate):
            return features
        mean_noise, std_noise = torch.where(gate, noise, 0.0)
        return perturbed(features, mean_noise, std_noise, eps=self.eps, channel_dim=channel_dim)

    def settings(self) -> dict[str, object]:
        return {"p": self.p, "eps": self.eps}
