"""Manifold mixup: average pairs of samples and their targets, at a depth drawn for every batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from efdm.nn import draw
from efdm.nn.layer import FeatureLayer, check_batch, check_ranges
from efdm.nn.pairing import paired
from efdm.ops import blend


@dataclass(frozen=True)
class _Drawn:
    """The draws of one batch: the depth, the partners, and the partners' weight ``(1,)``."""

    depth: Tensor
    partner: Tensor
    weight: Tensor

    def mixed(self, values: Tensor) -> Tensor:
        return blend(values, paired(values, self.partner), self.weight)

    def mixed_at(self, depth: int, values: Tensor) -> Tensor:
        """Return the values mixed if this is the drawn depth, otherwise unchanged."""
        here = self.depth == depth
        if draw.closed(here):
            return values
        return blend(values, paired(values, self.partner), torch.where(here, self.weight, 0.0))


class _Plan:
    """The draws shared by all depths. A copy starts without draws, because nothing would update those of a copied model."""

    drawn: _Drawn | None = None

    def __getstate__(self) -> dict[str, object]:
        return {}


class _MixedAt(FeatureLayer):
    """Manifold mixup at one depth; 1 is the first stage."""

    def __init__(self, depth: int, plan: _Plan) -> None:
        super().__init__(p=1.0)
        self.depth, self.plan = depth, plan

    def forward(self, features: Tensor, domains: Tensor | None = None, layout: tuple[int, int] | None = None) -> Tensor:
        return super().forward(features, domains, (1, 0))  # class tokens are also mixed, because their targets are mixed

    def check(self, features: Tensor, channel_dim: int) -> None:
        """Accept any shape, because features are only averaged."""

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        drawn, batch = self.plan.drawn, features.shape[0]
        if drawn is None or drawn.partner.shape[0] != batch:
            drawn_for = "no batch yet" if drawn is None else f"a batch of {drawn.partner.shape[0]}"
            raise RuntimeError(
                f"ManifoldMixup has drawn for {drawn_for}, but got features of {batch} samples; call "
                "`images, targets = mixup(images, targets)` before model(images), or set_active(model, False); copy a model "
                "and its mixup together with copy.deepcopy((model, mixup))"
            )
        return drawn.mixed_at(self.depth, features)

    def settings(self) -> dict[str, object]:
        return {"depth": self.depth}


class ManifoldMixup:
    """Manifold mixup (Verma et al., ICML 2019): average pairs of images, or of features after one stage, and their targets.

    A call draws partners, one weight from ``Beta(alpha, alpha)`` and one depth for a batch: 0 mixes the images, 1 the
    features after the first stage, and so on. The call returns mixed targets, and mixed images at depth 0. The ``layers``,
    one per stage, mix features at the other depths with the same partners and weight, until the next call. Batches drawn
    for a depth that `set_active` has switched off stay unchanged.

    Args:
        stages: number of stages.
        alpha: parameter of the weight's distribution.
        p: probability that a batch is mixed.
        generator: a generator on the images' device. Defaults to torch's own.

    >>> import torch
    >>> from efdm.nn import ManifoldMixup, mix_after
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
    >>> mixup = ManifoldMixup(stages=1)
    >>> model = mix_after(model, ["1"], mixup.layers)
    >>> images, targets = mixup(torch.rand(4, 3, 16, 16), torch.eye(4))
    >>> model(images).shape
    torch.Size([4, 4, 12, 12])
    """

    def __init__(
        self,
        stages: int,
        alpha: float = 2.0,  # published code, CIFAR
        p: float = 1.0,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        check_ranges(p=p, alpha=alpha)
        self.alpha, self.p, self.generator = alpha, p, generator
        self._plan = _Plan()
        self.layers = tuple(_MixedAt(depth, self._plan) for depth in range(1, stages + 1))

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(images, targets)
        off = [layer.depth for layer in self.layers if not layer.active]
        if off and len(off) == len(self.layers):
            self._plan.drawn = None
            return images, targets
        batch, device, generator = images.shape[0], images.device, self.generator
        gate = draw.gate(self.p, device, generator)
        depth = draw.integers(len(self.layers) + 1, device=device, generator=generator)
        kept = draw.beta(self.alpha, 1, device, generator)
        partner = draw.permutation(batch, device, generator)
        for switched in off:
            gate = gate & (depth != switched)
        self._plan.drawn = drawn = _Drawn(depth, partner, torch.where(gate, 1 - kept, 0.0))
        return drawn.mixed_at(0, images), drawn.mixed(targets)

    def __repr__(self) -> str:
        return f"ManifoldMixup(stages={len(self.layers)}, alpha={self.alpha}, p={self.p})"
