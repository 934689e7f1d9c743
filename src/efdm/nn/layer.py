"""What all layers on features have in common: when they work, where the channels are, what they draw from."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor, nn

from efdm.kernels import is_exporting
from efdm.nn.domains import in_backward


def check_p(p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"p={p} is not a probability; give a number from 0 (never) to 1 (always)")


def check_alpha(alpha: float, usual: str) -> None:
    if not 1e-6 <= alpha < inf:  # draws beyond are NaN at some point; long before they are the ends alone
        raise ValueError(f"alpha={alpha} must be positive and finite, at least 1e-6; {usual}")


def check_eps(eps: float) -> None:
    if not 0 <= eps < inf:
        raise ValueError(f"eps={eps} is added to variances; give a small number that is not negative, such as 1e-6")


def check_batch(images: Tensor, targets: Tensor) -> None:
    """For what averages samples and their targets: whole numbers would be rounded, and labels made into others."""
    if not images.is_floating_point():
        raise ValueError(f"images are of {images.dtype}; expected floating point, for example images.float() / 255")
    if targets.ndim != 2 or not targets.is_floating_point() or targets.shape[0] != images.shape[0]:
        raise ValueError(
            f"targets are {tuple(targets.shape)} of {targets.dtype}; expected probabilities ({images.shape[0]}, classes), "
            "for example one_hot(labels, classes).float()"
        )


class FeatureLayer(nn.Module):
    """Changes features at random, in training only. `mix_after` puts any of them after the stages of a model.

    A layer of one's own says in ``changed`` what it does, and in ``shown`` which settings it prints. It also draws its own
    gate there (`efdm.nn.draw.gate`): ``changed`` is called in every step unless ``p`` is 0, since on a GPU nobody can look
    at a draw without waiting for it, and since ``p`` may be another chance (`DropBlock`'s is a share of the features).

    Args:
        p: how often it works, or how much; 0 is never, and costs nothing.
        channel_dim: -1 for NHWC features and token sequences; by default what `mix_after` knows of a stage, otherwise 1.
        prefix: how many leading tokens (class token, registers) stay as they are; by default likewise, otherwise 0.
        generator: on the features' device; by default torch's own, so that `torch.manual_seed` repeats a run.
    """

    def __init__(
        self,
        p: float,
        *,
        channel_dim: int | None = None,
        prefix: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_p(p)
        if not isinstance(channel_dim, int | None) or not isinstance(prefix, int | None):
            raise TypeError(f"channel_dim={channel_dim!r} and prefix={prefix!r} must be integers")
        self.p, self.channel_dim, self.prefix, self.generator = p, channel_dim, prefix, generator
        self.active = True
        self.layout((-1, 0))  # now, and not at the first call, where it is wrong for all features

    def layout(self, known: tuple[int, int] = (1, 0)) -> tuple[int, int]:
        """``(channel_dim, prefix)``: the layer's own settings, and what is known of the features where it has none."""
        channel_dim = known[0] if self.channel_dim is None else self.channel_dim
        prefix = known[1] if self.prefix is None else self.prefix
        if prefix < 0:
            raise ValueError(f"prefix={prefix} must be a number of tokens; 0 is none")
        if prefix and channel_dim == 1:
            raise ValueError(
                f"prefix={prefix} are leading tokens, and channel_dim=1 makes tokens the channels; "
                "give channel_dim=-1 as well, or prefix=0"
            )
        return channel_dim, prefix

    def forward(self, features: Tensor, domains: Tensor | None = None, layout: tuple[int, int] | None = None) -> Tensor:
        """``domains`` are this batch's labels, for layers that look at them, by default those given to the model;
        ``layout`` is ``(channel_dim, prefix)`` where `mix_after` has found it out, instead of the layer's own."""
        if not (self.training and self.active) or self.p == 0:
            return features
        if not isinstance(features, Tensor):
            raise TypeError(f"features must be a tensor, got {type(features).__name__}")
        if features.shape[0] == 0:
            return features
        if is_exporting():
            raise RuntimeError(
                "call model.eval() before exporting: mixing is for training, and exported graphs are for inference"
            )
        if self.generator is not None and not torch.compiler.is_compiling() and in_backward():
            raise RuntimeError(
                "a checkpointed forward is being repeated, and a generator of one's own cannot be rewound for it: leave "
                "generator=None (torch rewinds its own), or do not checkpoint the mixing layer"
            )
        channel_dim, prefix = layout or self.layout()
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
        if self.channel_dim is not None:
            shown["channel_dim"] = self.channel_dim
        if self.prefix is not None:
            shown["prefix"] = self.prefix
        if self.generator is not None:
            shown["generator"] = f"<{self.generator.device}>"
        if not self.active:
            shown["active"] = False
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())
