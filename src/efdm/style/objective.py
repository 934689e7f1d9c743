"""What is minimised: from a batch of contents and styles to named losses. One class for each way to train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models import VGG, StyleNetwork
from efdm.nn.losses import STYLE_LOSSES, distribution_loss, likeness_loss, sliced_loss
from efdm.ops import MATCHERS, adain, efdm

STYLE_TAPS = ("relu1_1", "relu2_1", "relu3_1", "relu4_1")  # AdaIN's own code
LIKENESS_TAPS = {"relu3_3": 0.3, "relu4_3": 1.0}  # with their weights: where things are matters more than their edges
RECONSTRUCTED = ("relu2_2", "relu3_3")
DISTILLED = ("relu2_1", "relu3_1")
DIRECTIONS = 128  # random directions for each tap that has them


class PaperObjective(nn.Module):
    """The paper's training of a decoder: authors' code, section "style transfer".

    Content: the output's deepest features should be the matched ones. Style: at every tap, the method's own loss.
    """

    def __init__(self, network: StyleNetwork, *, method: str = "efdm", style_weight: float = 10.0) -> None:
        super().__init__()
        if not isinstance(network.stages[0], VGG) or len(network.stages) > 1:
            raise ValueError(f"the paper's objective trains the decoder of a VGG; {network.name} is trained by 'small'")
        self.network, self.method, self.style_weight = network, method, style_weight

    def trained(self) -> list[nn.Module]:
        return [self.network.decoder]

    def forward(self, content: Tensor, style: Tensor, directions: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        encoder = self.network.stages[0]
        with torch.no_grad():
            deep = encoder(content)
            wanted = encoder.taps(style, STYLE_TAPS)  # type: ignore[operator]
            matched = MATCHERS[self.method](deep, wanted[-1])
        output = self.network.decoder(matched)
        found = encoder.taps(output, STYLE_TAPS)  # type: ignore[operator]
        content_loss = F.mse_loss(found[-1], matched)
        style_loss = sum_of(STYLE_LOSSES[self.method](f, w) for f, w in zip(found, wanted, strict=True))
        return {"loss": content_loss + self.style_weight * style_loss, "content": content_loss, "style": style_loss}


class ReconstructionObjective(nn.Module):
    """The first lesson of a small network: give the picture back, and know what VGG knows.

    Linear heads must be able to tell VGG's features from those of the first stage, which is frozen afterwards.
    """

    def __init__(self, network: StyleNetwork, teacher: VGG, *, distil_weight: float = 1.0) -> None:
        super().__init__()
        self.network, self.teacher, self.distil_weight = network, teacher, distil_weight
        with torch.no_grad():
            picture = torch.zeros(1, 3, 32, 32, device=next(network.parameters()).device)
            width = network.stages[0](picture).shape[1]
            known = [t.shape[1] for t in teacher.taps(picture, DISTILLED)]
        self.heads = nn.ModuleList(nn.Conv2d(width, k, 1) for k in known)

    def trained(self) -> list[nn.Module]:
        return [self.network, self.heads]

    def forward(self, content: Tensor, style: Tensor, directions: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        images = torch.cat([content, style])
        with torch.no_grad():
            names = sorted({*DISTILLED, *RECONSTRUCTED})
            told = dict(zip(names, self.teacher(images, names), strict=True))
        features = self.network.features(images)
        output = self.network.decoder(features[-1])
        pixels = F.l1_loss(output, images)
        seen = self.teacher(output, RECONSTRUCTED)
        likeness = sum_of(likeness_loss(s, told[t]) for s, t in zip(seen, RECONSTRUCTED, strict=True))
        height, width = features[0].shape[-2:]
        distilled = sum_of(
            _distance_in_spread(head(features[0]), F.adaptive_avg_pool2d(told[t], (height, width)))
            for head, t in zip(self.heads, DISTILLED, strict=True)
        )
        loss = 10 * pixels + likeness + self.distil_weight * distilled
        return {"loss": loss, "pixels": pixels, "likeness": likeness, "distilled": distilled}


def _distance_in_spread(guess: Tensor, target: Tensor) -> Tensor:
    spread = target.float().std((0, 2, 3), keepdim=True).clamp_min(1e-3)
    return ((guess - target) / spread).square().mean()


class SmallObjective(nn.Module):
    """Style and content as a VGG sees them, for a network whose features are its own.

    Style: sorted values at every tap in units of the style's spread, along the channels and along random directions.
    Content: directions of feature vectors. ``identity``: the last samples of a batch are styled by themselves and
    should come back unchanged. Losses are means over the batch and can be averaged over ``processes``; if only one of
    them has identities, it counts for all.
    """

    def __init__(
        self,
        network: StyleNetwork,
        teacher: VGG,
        *,
        method: str = "efdm",
        style_weight: float = 4.0,
        sliced_weight: float = 1.0,
        identity_weight: float = 4.0,
        identities: int = 1,
        processes: int = 1,
    ) -> None:
        super().__init__()
        self.network, self.teacher, self.method = network, teacher, method
        self.style_weight, self.sliced_weight = style_weight, sliced_weight
        self.identity_weight, self.identities, self.processes = identity_weight, identities, processes

    def trained(self) -> list[nn.Module]:
        return [*self.network.stages[1:], self.network.decoder]

    def transfer(self, content: Tensor, style: Tensor) -> Tensor:
        """Both pictures through the stages, matched after each."""
        c, s = content, style
        for depth, stage in enumerate(self.network.stages):
            with torch.set_grad_enabled(depth > 0 and torch.is_grad_enabled()):
                c, s = stage(torch.cat([c, s])).chunk(2)
                if depth and self.method == "efdm":
                    # A match keeps only the order of the content, so its straight-through gradient would let trainable
                    # features drift in scale; brought to the style's moments first, they cannot. Gradients to the
                    # style are exact: a match only moves its values.
                    c = efdm(adain(c, s.detach()), s, style_grad="flow")
                else:
                    c = MATCHERS[self.method](c, s)
        return self.network.decoder(c)

    def forward(self, content: Tensor, style: Tensor, directions: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        same = self.identities
        if same and len(content) * self.processes <= same:
            count = len(content) * self.processes
            raise ValueError(
                f"a batch of {count} with identities={same} has no style to learn; it takes at least {same + 1}"
            )
        if same:
            style = torch.cat([style[:-same], content[-same:]])
        taps = sorted({*STYLE_TAPS, *LIKENESS_TAPS})
        with torch.no_grad():
            known = [t.chunk(2) for t in self.teacher(torch.cat([content, style]), taps)]
        output = self.transfer(content, style)
        found = dict(zip(taps, self.teacher(output, taps), strict=True))
        wanted = {t: k[t in STYLE_TAPS] for t, k in zip(taps, known, strict=True)}
        as_seen: dict[str, Any] = {"norm": "huber", "unit": "spread"}
        losses = {
            "content": sum_of(w * likeness_loss(found[t], wanted[t]) for t, w in LIKENESS_TAPS.items()),
            "style": sum_of(distribution_loss(found[t], wanted[t], **as_seen) for t in STYLE_TAPS) / len(STYLE_TAPS),
            "identity": F.l1_loss(output[-same:], content[-same:]) * self.processes if same else output.new_zeros(()),
        }
        loss = losses["content"] + self.style_weight * losses["style"] + self.identity_weight * losses["identity"]
        if self.sliced_weight and directions:
            deep = STYLE_TAPS[-len(directions) :]
            losses["sliced"] = sum_of(
                sliced_loss(found[t], wanted[t], d, **as_seen) for t, d in zip(deep, directions, strict=True)
            )
            loss = loss + self.sliced_weight * losses["sliced"]
        return {"loss": loss, **losses}


def sum_of(values: object) -> Tensor:
    return torch.stack(list(values)).sum()  # type: ignore[call-overload]
