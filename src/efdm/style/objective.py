"""Training objectives: modules that map a batch of contents and styles to named losses. `OBJECTIVES` is the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models import VGG, StyleNetwork
from efdm.models.weights import load_encoder
from efdm.nn.losses import STYLE_LOSSES, distribution_loss, likeness_loss, sliced_loss
from efdm.ops import MATCHERS, adain, efdm
from efdm.training.distributed import gather_rows, processes

if TYPE_CHECKING:
    from efdm.style.settings import Settings

STYLE_TAPS = ("relu1_1", "relu2_1", "relu3_1", "relu4_1")  # AdaIN, authors' code
LIKENESS_TAPS = {"relu3_3": 0.3, "relu4_3": 1.0}  # weights: layout counts more than edges
RECONSTRUCTED = ("relu2_2", "relu3_3")
DISTILLED = ("relu2_1", "relu3_1")
DIRECTIONS = 128  # random directions per tap of the sliced loss
IDENTITIES = 1  # samples of a batch that are their own style


class PaperObjective(nn.Module):
    """The paper's objective for the decoder of a VGG, as in the authors' code.

    Content: the deepest features of the output should equal the matched features. Style: the loss of the method at each tap.
    """

    def __init__(self, network: StyleNetwork, *, method: str = "efdm", style_weight: float = 10.0) -> None:
        super().__init__()
        self.network, self.method, self.style_weight = network, method, style_weight

    def trained(self) -> list[nn.Module]:
        return [self.network.decoder]

    def forward(self, content: Tensor, style: Tensor, directions: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        encoder = self.network.stages[0]
        with torch.no_grad():
            deep = encoder(content)
            targets = encoder.taps(style, STYLE_TAPS)  # type: ignore[operator]
            matched = MATCHERS[self.method](deep, targets[-1])
        output = self.network.decoder(matched)
        features = encoder.taps(output, STYLE_TAPS)  # type: ignore[operator]
        content_loss = F.mse_loss(features[-1], matched)
        style_loss = sum_of(STYLE_LOSSES[self.method](f, w) for f, w in zip(features, targets, strict=True))
        return {"loss": content_loss + self.style_weight * style_loss, "content": content_loss, "style": style_loss}


class ReconstructionObjective(nn.Module):
    """The first phase of a network trained from scratch: reconstruct the image and predict VGG features.

    Linear heads predict VGG features from those of the first stage, which is frozen afterwards.
    """

    def __init__(self, network: StyleNetwork, teacher: VGG) -> None:
        super().__init__()
        self.network, self.teacher = network, teacher
        with torch.no_grad():
            image = torch.zeros(1, 3, 32, 32, device=next(network.parameters()).device)
            width = network.stages[0](image).shape[1]
            known = [t.shape[1] for t in teacher.taps(image, DISTILLED)]
        self.heads = nn.ModuleList(nn.Conv2d(width, k, 1) for k in known)

    def trained(self) -> list[nn.Module]:
        return [self.network, self.heads]

    def forward(self, content: Tensor, style: Tensor, directions: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        images = torch.cat([content, style])
        with torch.no_grad():
            names = sorted({*DISTILLED, *RECONSTRUCTED})
            targets = dict(zip(names, self.teacher(images, names), strict=True))
        features = self.network.features(images)
        output = self.network.decoder(features[-1])
        pixels = F.l1_loss(output, images)
        seen = self.teacher(output, RECONSTRUCTED)
        likeness = sum_of(likeness_loss(s, targets[t]) for s, t in zip(seen, RECONSTRUCTED, strict=True))
        height, width = features[0].shape[-2:]
        distilled = sum_of(
            _standardized_distance(head(features[0]), F.adaptive_avg_pool2d(targets[t], (height, width)))
            for head, t in zip(self.heads, DISTILLED, strict=True)
        )
        loss = 10 * pixels + likeness + distilled
        return {"loss": loss, "pixels": pixels, "likeness": likeness, "distilled": distilled}


def _standardized_distance(guess: Tensor, target: Tensor) -> Tensor:
    spread = gather_rows(target).float().std((0, 2, 3), keepdim=True).clamp_min(1e-3)
    return ((guess - target) / spread).square().mean()


class PerceptualObjective(nn.Module):
    """Style and content losses in the features of a VGG, for a network with its own encoder.

    Style: distances of sorted values at every tap, in units of the style's standard deviation, per channel and along random
    directions. Content: cosine distances of feature vectors. Identity: the last ``identities`` samples of a batch are their
    own style and should be reproduced. Losses are means over the batch, to be averaged over ``processes``; if only one
    process has identities, their loss is multiplied by the number of processes.
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
        """Return the output for both images, matched after every stage."""
        c, s = content, style
        for depth, stage in enumerate(self.network.stages):
            with torch.set_grad_enabled(depth > 0 and torch.is_grad_enabled()):
                c, s = stage(torch.cat([c, s])).chunk(2)
                if depth and self.method == "efdm":
                    # A match preserves only the order of the content, so with its straight-through gradient the scale of
                    # trainable features would drift; matching the style's moments first prevents that. Gradients to the
                    # style are exact, because a match permutes its values.
                    c = efdm(adain(c, s.detach()), s, style_grad="flow")
                else:
                    c = MATCHERS[self.method](c, s)
        return self.network.decoder(c)

    def forward(self, content: Tensor, style: Tensor, directions: Sequence[Tensor] = ()) -> dict[str, Tensor]:
        same = self.identities
        if same:
            style = torch.cat([style[:-same], content[-same:]])
        taps = sorted({*STYLE_TAPS, *LIKENESS_TAPS})
        with torch.no_grad():
            known = [t.chunk(2) for t in self.teacher(torch.cat([content, style]), taps)]
        output = self.transfer(content, style)
        features = dict(zip(taps, self.teacher(output, taps), strict=True))
        targets = {t: k[t in STYLE_TAPS] for t, k in zip(taps, known, strict=True)}
        options: dict[str, Any] = {"norm": "huber", "unit": "spread"}
        losses = {
            "content": sum_of(w * likeness_loss(features[t], targets[t]) for t, w in LIKENESS_TAPS.items()),
            "style": sum_of(distribution_loss(features[t], targets[t], **options) for t in STYLE_TAPS) / len(STYLE_TAPS),
            "identity": F.l1_loss(output[-same:], content[-same:]) * self.processes if same else output.new_zeros(()),
        }
        loss = losses["content"] + self.style_weight * losses["style"] + self.identity_weight * losses["identity"]
        if self.sliced_weight and directions:
            deep = STYLE_TAPS[-len(directions) :]
            losses["sliced"] = sum_of(
                sliced_loss(features[t], targets[t], d, **options) for t, d in zip(deep, directions, strict=True)
            )
            loss = loss + self.sliced_weight * losses["sliced"]
        return {"loss": loss, **losses}


def sum_of(values: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(values)).sum()


def _paper(network: StyleNetwork, settings: Settings, device: torch.device) -> dict[str, nn.Module]:
    return {"style": PaperObjective(network, method=settings.method, style_weight=settings.style_weight)}


def _perceptual(network: StyleNetwork, settings: Settings, device: torch.device) -> dict[str, nn.Module]:
    # zero padding, as in the training of the VGG, because nothing is decoded from its features
    teacher = load_encoder("vgg16", "relu4_3", path=settings.vgg or None, padding="zeros", pooling="floor").to(device)
    rank, world = processes()
    styled = PerceptualObjective(
        network, teacher, method=settings.method, style_weight=settings.style_weight,
        sliced_weight=settings.sliced_weight, identity_weight=settings.identity_weight,
        identities=IDENTITIES if settings.identity_weight and rank == world - 1 else 0, processes=world,
    )  # fmt: skip
    first = {"reconstruct": ReconstructionObjective(network, teacher)} if settings.reconstruct else {}
    return {**first, "style": styled}


# name -> function that returns the objective of each phase, in the order in which they are trained
OBJECTIVES: Mapping[str, Callable[[StyleNetwork, Settings, torch.device], dict[str, nn.Module]]] = {
    "paper": _paper,
    "perceptual": _perceptual,
}  # fmt: skip
