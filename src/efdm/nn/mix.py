"""Feature mixing as a layer: draw partners and weights, call `efdm.ops.mix_features`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from efdm.nn import draw
from efdm.nn.domains import current_domains, labels_for_draw
from efdm.nn.layer import FeatureLayer, check_alpha, check_eps
from efdm.nn.pairing import PAIRINGS, Pairing
from efdm.ops import MATCHERS, Partners, mix_features
from efdm.ops.choices import check_choice, check_options


class FeatureMix(FeatureLayer):
    """Mix the distribution of every sample's features with that of another sample, in training only.

    Args:
        method: a row of `MATCHERS`: ``"efdm"`` is EFDMix, ``"adain"`` MixStyle; ``"adamean"``, ``"adastd"`` and ``"hm"``
            are the paper's study of orders.
        p: the chance that a call mixes at all.
        alpha: the share of its own style that a sample keeps is drawn from ``Beta(alpha, alpha)``; None keeps nothing.
        pairing: how samples are paired, a row of `PAIRINGS`: ``"random"`` (the default), ``"crossdomain"`` (needs domain
            labels) or ``"halves"`` (the authors' code).
        channel_dim, prefix, generator: as in `FeatureLayer`.
        mix: another name of ``pairing``, as in Dassl.
        options: go to the matcher: ``ties``, ``style_grad``, ``eps``...

    Everything random is drawn on the features' device, and nothing is read back from a GPU: there, a call that is not
    active computes and keeps the content (weight 1), so the same code runs in CUDA graphs and compiled models.
    """

    def __init__(
        self,
        method: str = "efdm",
        p: float = 0.5,
        alpha: float | None = 0.1,
        pairing: Pairing | None = None,
        *,
        channel_dim: int | None = None,
        prefix: int | None = None,
        generator: torch.Generator | None = None,
        mix: Pairing | None = None,
        **options: Any,
    ) -> None:
        super().__init__(p, channel_dim=channel_dim, prefix=prefix, generator=generator)
        check_choice("method", method, MATCHERS)
        if mix is not None:
            if pairing is not None:
                raise TypeError(f"pairing={pairing!r} and mix={mix!r} are the same argument; pass pairing only")
            pairing = mix
        pairing = "random" if pairing is None else pairing
        check_choice("pairing", pairing, PAIRINGS)
        if alpha is not None:
            check_alpha(alpha, "the paper uses 0.1")
        # now, and not at the first call that happens to mix
        check_options(MATCHERS[method].function, options, without=("content_grad", "content_mask", "style_mask"))
        check_eps(options.get("eps", 0.0))
        self.method, self.alpha, self.pairing, self.options = method, alpha, pairing, options

    def changed(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        batch, device, generator = features.shape[0], features.device, self.generator
        domains = current_domains() if domains is None else domains
        if generator is None and not torch.compiler.is_compiling() and self.pairing == "crossdomain":
            domains = labels_for_draw(domains, device)
        gate = draw.gate(self.p, device, generator)
        noise = () if self.alpha is None else draw.beta_noise(batch, device, generator)
        partner = PAIRINGS[self.pairing](batch, domains, device, generator)
        if draw.closed(gate):
            return features
        kept = torch.zeros(batch, device=device) if self.alpha is None else draw.beta_from(self.alpha, *noise)
        lam = torch.where(gate, kept, 1.0)
        options = {**self.options, "channel_dim": channel_dim}
        if self.options.get("ties") == "random":
            options["generator"] = generator
        return mix_features(features, Partners(partner, "drawn"), lam, self.method, **options)

    def shown(self) -> dict[str, object]:
        return {"method": self.method, "p": self.p, "alpha": self.alpha, "pairing": self.pairing, **self.options}


class EFDMix(FeatureMix):
    """Exact feature distribution mixing (paper, equation 8): `FeatureMix` with ``method="efdm"``.

    >>> import torch
    >>> from efdm import EFDMix
    >>> layer = EFDMix(p=0.5, alpha=0.1, pairing="random")
    >>> layer
    EFDMix(method='efdm', p=0.5, alpha=0.1, pairing='random')
    >>> features = torch.rand(8, 16, 14, 14)
    >>> layer(features).shape
    torch.Size([8, 16, 14, 14])
    >>> layer.eval()(features) is features
    True
    """

    def __init__(self, p: float = 0.5, alpha: float | None = 0.1, pairing: Pairing | None = None, **settings: Any) -> None:
        super().__init__("efdm", p, alpha, pairing, **settings)


class MixStyle(FeatureMix):
    """MixStyle (Zhou et al., ICLR 2021): `FeatureMix` with ``method="adain"``, statistics detached."""

    def __init__(self, p: float = 0.5, alpha: float | None = 0.1, pairing: Pairing | None = None, **settings: Any) -> None:
        super().__init__("adain", p, alpha, pairing, **settings)


class CrossNorm(FeatureMix):
    """CrossNorm (Tang et al., ICCV 2021): means and standard deviations of another sample, entirely.

    `FeatureMix` with ``method="adain"`` that keeps nothing of a sample's own style. As in the published code, gradients flow
    through the statistics of both samples. Left out: its crops, and its other mode, which exchanges channels of one sample.
    The published code opens one of its many places for a batch; here every stage draws by itself, as all layers do.

    >>> from efdm.nn import CrossNorm
    >>> CrossNorm(p=0.25)
    CrossNorm(p=0.25, pairing='random', eps=1e-05)
    """

    def __init__(
        self,
        p: float = 0.5,  # published code, ImageNet
        pairing: Pairing | None = None,
        *,
        eps: float = 1e-5,  # published code
        **settings: Any,
    ) -> None:
        super().__init__("adain", p, None, pairing, eps=eps, style_grad="flow", content_stats="flow", **settings)

    def shown(self) -> dict[str, object]:
        return {"p": self.p, "pairing": self.pairing, "eps": self.options["eps"]}
