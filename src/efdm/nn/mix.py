"""Feature mixing as a layer: draw partners and weights, call `efdm.ops.mix`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from efdm.kernels import exporting
from efdm.nn import draw
from efdm.nn.domains import current_domains, in_backward, labels_for_draw
from efdm.nn.pairing import PAIRINGS
from efdm.ops import MATCHERS, Partners
from efdm.ops import mix as ops_mix
from efdm.ops.choices import check_choice, check_options


class FeatureMix(nn.Module):
    """Mix the distribution of every sample's features with that of another sample, in training only.

    Args:
        method: a row of `MATCHERS`: ``"efdm"`` is EFDMix, ``"adain"`` MixStyle; ``"adamean"``, ``"adastd"`` and ``"hm"``
            are the paper's study of orders.
        p: the chance that a call mixes at all.
        alpha: the share of its own style that a sample keeps is drawn from ``Beta(alpha, alpha)``.
        mix: who mixes with whom, a row of `PAIRINGS`: ``"random"``, ``"crossdomain"`` (needs domain labels) or
            ``"halves"`` (the authors' code).
        channel_dim: -1 for NHWC features and token sequences.
        prefix: how many leading tokens (class token, registers) stay as they are.
        generator: on the features' device; by default torch's own, so that `torch.manual_seed` repeats a run.
        options: go to the matcher: ``ties``, ``style_grad``, ``eps``...

    Everything random is drawn on the features' device, and nothing is read back from a GPU: there, a call that is not
    active computes and keeps the content (weight 1), so the same code runs in CUDA graphs and compiled models.
    """

    def __init__(
        self,
        method: str = "efdm",
        p: float = 0.5,
        alpha: float = 0.1,
        mix: str = "random",
        *,
        channel_dim: int = 1,
        prefix: int = 0,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_choice("method", method, MATCHERS)
        check_choice("mix", mix, PAIRINGS)
        if not 0 <= p <= 1:
            raise ValueError(f"p={p} is not a probability; give a number from 0 (never mix) to 1 (always)")
        if not alpha > 0:
            raise ValueError(f"alpha={alpha} must be positive; the paper uses 0.1")
        if not isinstance(channel_dim, int) or not isinstance(prefix, int):
            raise TypeError(f"channel_dim={channel_dim!r} and prefix={prefix!r} must be integers")
        # now, and not at the first call that happens to mix
        check_options(MATCHERS[method].function, options, without=("content_grad", "content_mask", "style_mask"))
        self.method, self.p, self.alpha, self.mix = method, p, alpha, mix
        self.channel_dim, self.prefix = channel_dim, prefix
        self.generator, self.options = generator, options
        self.active = True

    def forward(self, features: Tensor, domains: Tensor | None = None, layout: tuple[int, int] | None = None) -> Tensor:
        """``domains`` are this batch's labels, by default those given to the model; ``layout`` overrides
        ``(channel_dim, prefix)`` where `mix_after` knows better."""
        if not (self.training and self.active) or self.p == 0:
            return features
        if not isinstance(features, Tensor):
            raise TypeError(f"features must be a tensor, got {type(features).__name__}")
        if features.shape[0] == 0:
            return features
        channel_dim, prefix = layout or (self.channel_dim, self.prefix)
        if prefix:
            mixed = self._mixed(features[:, prefix:], domains, channel_dim)
            return torch.cat([features[:, :prefix], mixed], 1)
        return self._mixed(features, domains, channel_dim)

    def _mixed(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        batch, device, generator = features.shape[0], features.device, self.generator
        domains = current_domains() if domains is None else domains
        compiling = torch.compiler.is_compiling()
        if exporting():
            raise RuntimeError(
                "call model.eval() before exporting: mixing is for training, and exported graphs are for inference"
            )
        if generator is None and not compiling and self.mix == "crossdomain":
            domains = labels_for_draw(domains, device)
        if generator is not None and not compiling and in_backward():
            raise RuntimeError(
                "a checkpointed forward is being repeated, and a generator of one's own cannot be rewound for it: leave "
                "generator=None (torch rewinds its own), or do not checkpoint the mixing layer"
            )
        gate = draw.uniform(device=device, generator=generator) < self.p
        lam = draw.beta(self.alpha, batch, device, generator)
        partner = PAIRINGS[self.mix](batch, domains, device, generator)
        if device.type == "cpu" and not compiling and type(gate) is Tensor and not gate:
            return features  # reading the gate is free here, and saves the work
        lam = torch.where(gate, lam, 1.0)
        options = {**self.options, "channel_dim": channel_dim}
        if self.options.get("ties") == "random":
            options["generator"] = generator
        return ops_mix(features, Partners(partner, "drawn"), lam, self.method, **options)

    def extra_repr(self) -> str:
        shown = {"method": self.method, "p": self.p, "alpha": self.alpha, "mix": self.mix, **self.options}
        if self.channel_dim != 1:
            shown["channel_dim"] = self.channel_dim
        if self.prefix:
            shown["prefix"] = self.prefix
        if self.generator is not None:
            shown["generator"] = f"<{self.generator.device}>"
        if not self.active:
            shown["active"] = False
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())


class EFDMix(FeatureMix):
    """Exact feature distribution mixing (paper, equation 8): `FeatureMix` with ``method="efdm"``.

    >>> import torch
    >>> from efdm import EFDMix
    >>> layer = EFDMix(p=0.5, alpha=0.1, mix="random")
    >>> layer
    EFDMix(method='efdm', p=0.5, alpha=0.1, mix='random')
    >>> features = torch.rand(8, 16, 14, 14)
    >>> layer(features).shape
    torch.Size([8, 16, 14, 14])
    >>> layer.eval()(features) is features
    True
    """

    def __init__(self, p: float = 0.5, alpha: float = 0.1, mix: str = "random", **settings: Any) -> None:
        super().__init__("efdm", p, alpha, mix, **settings)


class MixStyle(FeatureMix):
    """MixStyle (Zhou et al., ICLR 2021): `FeatureMix` with ``method="adain"``, statistics detached."""

    def __init__(self, p: float = 0.5, alpha: float = 0.1, mix: str = "random", **settings: Any) -> None:
        super().__init__("adain", p, alpha, mix, **settings)
