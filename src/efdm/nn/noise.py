"""Gaussian noise on whole feature distributions as a layer."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch import Tensor

from efdm.nn import draw
from efdm.nn.layer import FeatureLayer, check_ranges
from efdm.ops.choices import StyleGrad, check_choice
from efdm.ops.joint import fixed_rotations
from efdm.ops.noise import distribution_noise

Draws = Literal["joint", "channels"]
Axes = Literal["channels", "rotated"]


class DistributionNoise(FeatureLayer):
    """Add Gaussian noise to the sorted values of every sample, with their covariance in the batch.

    `DSU` moves the mean and the standard deviation of every channel by noise as wide as their spread in the batch. This
    layer moves the whole distribution in the same way, see `efdm.distribution_noise`. A batch of one stays unchanged.

    Args:
        p: probability that a call adds noise.
        strength: factor of the noise. 1 is the spread of the batch.
        style_grad: ``"flow"`` also differentiates the distributions that the noise is made of, ``"stop"`` does not.
        draws: ``"joint"`` draws one noise for all channels, so that it has the batch's covariance over channels as well.
            ``"channels"`` draws independently for every channel.
        axes: ``"rotated"`` adds the noise along rotated axes instead of channels, as `efdm.ops.match_jointly` matches. The
            rotation is random but fixed.
        settings: ``channel_dim``, ``prefix`` and ``generator`` of `FeatureLayer`.

    >>> import torch
    >>> from efdm import DistributionNoise
    >>> layer = DistributionNoise(p=0.5)
    >>> layer
    DistributionNoise(p=0.5, strength=1.0, style_grad='flow', draws='joint', axes='channels')
    >>> layer(torch.rand(8, 16, 14, 14)).shape
    torch.Size([8, 16, 14, 14])
    """

    def __init__(
        self,
        p: float = 0.5,
        strength: float = 1.0,
        *,
        style_grad: StyleGrad = "flow",
        draws: Draws = "joint",
        axes: Axes = "channels",
        **settings: Any,
    ) -> None:
        super().__init__(p, **settings)
        check_ranges(strength=strength)
        check_choice("style_grad", style_grad)
        check_choice("draws", draws, get_args(Draws))
        check_choice("axes", axes, get_args(Axes))
        self.strength, self.style_grad, self.draws, self.axes = strength, style_grad, draws, axes

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        batch, device = features.shape[0], features.device
        channels = () if self.draws == "joint" else (features.shape[channel_dim],)
        gate = draw.gate(self.p, device, self.generator)
        noise = draw.normal(*channels, batch, batch, device=device, generator=self.generator)
        if batch == 1 or draw.closed(gate):
            return features
        weights = noise * (gate * (self.strength / (batch - 1) ** 0.5))
        if self.axes == "channels":
            return distribution_noise(features, weights, style_grad=self.style_grad, channel_dim=channel_dim)
        last = features.movedim(channel_dim, -1)
        turn, back = fixed_rotations(last.shape[-1], 1, device, features.dtype)
        turned = last @ turn.mT
        moved = distribution_noise(turned, weights, style_grad=self.style_grad, channel_dim=-1)
        # the difference alone is rotated back, so that features without noise stay exact
        return features + ((moved - turned) @ back.mT).movedim(-1, channel_dim).to(features.dtype)

    def settings(self) -> dict[str, object]:
        names = ("p", "strength", "style_grad", "draws", "axes")
        return {name: getattr(self, name) for name in names}
