"""Feature mixing as a layer: draw partners and weights, then call `efdm.ops.mix_features`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from efdm.nn import draw
from efdm.nn.domains import current_domains, labels_for_draw
from efdm.nn.layer import FeatureLayer, check_ranges
from efdm.nn.pairing import PAIRINGS, Pairing
from efdm.ops import MATCHERS, Partners, mix_features
from efdm.ops.choices import check_choice, options_of

_OF_MIX = ("content_grad", "content_mask", "style_mask")  # options of the matchers that layers do not take


class FeatureMix(FeatureLayer):
    """Mix the feature distribution of every sample with that of another sample, in training mode only.

    Args:
        method: a row of `MATCHERS`. ``"efdm"`` is EFDMix and ``"adain"`` is MixStyle; ``"adamean"``, ``"adastd"`` and
            ``"hm"`` are the other rows of the paper's study of orders.
        p: probability that a call mixes.
        alpha: each sample keeps a share of its own style, drawn from ``Beta(alpha, alpha)``. None keeps none of it.
        pairing: a row of `PAIRINGS`: ``"random"`` (the default), ``"crossdomain"`` (needs domain labels) or ``"halves"``
            (the authors' code).
        channel_dim, prefix, generator: see `FeatureLayer`.
        mix: alias of ``pairing`` for code written for Dassl.
        options: passed to the matcher, for example ``ties``, ``style_grad`` or ``eps``.

    All random numbers are drawn on the features' device, and nothing is read back from a GPU: an inactive call there mixes
    with weight 0. The same code therefore runs in CUDA graphs and compiled models.
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
        if pairing is not None and mix is not None:
            raise TypeError(f"pairing={pairing!r} and mix={mix!r} are the same argument; pass pairing only")
        pairing = pairing or mix or "random"
        check_choice("method", method, MATCHERS)
        check_choice("pairing", pairing, PAIRINGS)
        known = [name for name in options_of(MATCHERS[method].function) if name not in _OF_MIX]
        self.check_options(options, known)
        check_ranges(alpha=1.0 if alpha is None else alpha, eps=options.get("eps", 0.0))
        self.method, self.alpha, self.pairing, self.options = method, alpha, pairing, options

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
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

    def settings(self) -> dict[str, object]:
        return {"method": self.method, "p": self.p, "alpha": self.alpha, "pairing": self.pairing, **self.options}


class EFDMix(FeatureMix):
    """Exact feature distribution mixing (paper, equation 10): `FeatureMix` with ``method="efdm"``.

    Gradients also flow to the partner's features, as in the authors' code. In our experiments, this comes closer to the
    paper's accuracies than ``style_grad="stop"``, which follows the text of the paper.

    >>> import torch
    >>> from efdm import EFDMix
    >>> layer = EFDMix(p=0.5, alpha=0.1, pairing="random")
    >>> layer
    EFDMix(method='efdm', p=0.5, alpha=0.1, pairing='random', style_grad='flow')
    >>> features = torch.rand(8, 16, 14, 14)
    >>> layer(features).shape
    torch.Size([8, 16, 14, 14])
    >>> layer.eval()(features) is features
    True
    """

    def __init__(self, p: float = 0.5, alpha: float | None = 0.1, pairing: Pairing | None = None, **settings: Any) -> None:
        super().__init__("efdm", p, alpha, pairing, **{"style_grad": "flow", **settings})


class MixStyle(FeatureMix):
    """MixStyle (Zhou et al., ICLR 2021): `FeatureMix` with ``method="adain"``, statistics detached."""

    def __init__(self, p: float = 0.5, alpha: float | None = 0.1, pairing: Pairing | None = None, **settings: Any) -> None:
        super().__init__("adain", p, alpha, pairing, **settings)


class CrossNorm(FeatureMix):
    """CrossNorm (Tang et al., ICCV 2021): replace means and standard deviations by those of another sample.

    `FeatureMix` with ``method="adain"`` and ``alpha=None``. As in the published code, gradients flow through the statistics
    of both samples. The published crops and the exchange between channels of one sample are not implemented. The published
    code activates one of its layers per batch; here each stage draws its own gate, as all feature layers do.

    >>> from efdm import CrossNorm
    >>> CrossNorm(p=0.25)
    CrossNorm(p=0.25, pairing='random', eps=1e-05, style_grad='flow', content_stats='flow')
    """

    def __init__(
        self,
        p: float = 0.5,  # published code, ImageNet
        pairing: Pairing | None = None,
        *,
        eps: float = 1e-5,  # published code
        **settings: Any,
    ) -> None:
        settings = {"eps": eps, "style_grad": "flow", "content_stats": "flow", **settings}
        super().__init__("adain", p, None, pairing, **settings)

    def settings(self) -> dict[str, object]:
        return {"p": self.p, "pairing": self.pairing, **self.options}
