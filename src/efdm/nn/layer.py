"""What all layers on features have in common: when they work, where the channels are, what they draw from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from efdm.kernels import exporting
from efdm.nn.domains import in_backward


def check_p(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"p={p} is not a probability; give a number from 0 (never) to 1 (always)")


def check_alpha(alpha: float, usual: str) -> None:
    if not alpha > 0:
        raise ValueError(f"alpha={alpha} must be positive; {usual}")


class FeatureLayer(nn.Module):
    """Changes features at random, in training only. `mix_after` puts any of them after the stages of a model.

    A layer of one's own says in ``changed`` what it does, and in ``shown`` which settings it prints. It also draws its own
    gate there (`efdm.nn.draw.gate`): ``changed`` is called in every step unless ``p`` is 0, since on a GPU nobody can look
    at a draw without waiting for it, and since ``p`` may be another chance (`DropBlock`'s is a share of the features).

    Args:
        p: how often it works, or how much; 0 is never, and costs nothing.
        channel_dim: -1 for NHWC features and token sequences.
        prefix: how many leading tokens (class token, registers) stay as they are.
        generator: on the features' device; by default torch's own, so that `torch.manual_seed` repeats a run.
    """

    def __init__(self, p: float, *, channel_dim: int = 1, prefix: int = 0, generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_p(p)
        if not isinstance(channel_dim, int) or not isinstance(prefix, int):
            raise TypeError(f"channel_dim={channel_dim!r} and prefix={prefix!r} must be integers")
        self.p, self.channel_dim, self.prefix, self.generator = p, channel_dim, prefix, generator
        self.active = True

    def forward(self, features: Tensor, domains: Tensor | None = None, layout: tuple[int, int] | None = None) -> Tensor:
        """``domains`` are this batch's labels, for layers that look at them, by default those given to the model;
        ``layout`` overrides ``(channel_dim, prefix)`` where `mix_after` knows better."""
        if not (self.training and self.active) or self.p == 0:
            return features
        if not isinstance(features, Tensor):
            raise TypeError(f"features must be a tensor, got {type(features).__name__}")
        if features.shape[0] == 0:
            return features
        if exporting():
            raise RuntimeError(
                "call model.eval() before exporting: mixing is for training, and exported graphs are for inference"
            )
        if self.generator is not None and not torch.compiler.is_compiling() and in_backward():
            raise RuntimeError(
                "a checkpointed forward is being repeated, and a generator of one's own cannot be rewound for it: leave "
                "generator=None (torch rewinds its own), or do not checkpoint the mixing layer"
            )
        channel_dim, prefix = layout or (self.channel_dim, self.prefix)
        if prefix:
            changed = self.changed(features[:, prefix:], domains, channel_dim)
            return torch.cat([features[:, :prefix], changed], 1)
        return self.changed(features, domains, channel_dim)

    def changed(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        """What the layer makes of features, without their prefix."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does to features")

    def shown(self) -> dict[str, object]:
        """The settings that it prints."""
        return {"p": self.p}

    def extra_repr(self) -> str:
        shown = self.shown()
        if self.channel_dim != 1:
            shown["channel_dim"] = self.channel_dim
        if self.prefix:
            shown["prefix"] = self.prefix
        if self.generator is not None:
            shown["generator"] = f"<{self.generator.device}>"
        if not self.active:
            shown["active"] = False
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())
