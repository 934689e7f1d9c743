"""Style transfer by optimising the pixels themselves: slow, needs no training, and what trained networks are compared with.

A method is a row of `OPTIMISERS`. They suppose a VGG as it was trained: torchvision's weights and not normalised ones,
zeros at the borders, and pooling that drops odd edges.

Gatys' method is there twice, as its look hangs on how much content counts: "gatys" has the weights of the authors' code,
"gatys-20" counts content 20 times as much. The 20 is ours and was chosen by eye, on one portrait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.models import VGG
from efdm.models.vgg import IMAGENET_STD
from efdm.nn.losses import distribution_loss, gram
from efdm.ops.choices import check_choice

Loss = Callable[[Tensor], Tensor]  # of features, for a style that is remembered
Progress = Callable[[int, int, float], object]  # evaluations done, all of them, loss

# Gatys' weights suppose a VGG that sees pixels from 0 to 255. Torchvision's sees them divided by 255 and by the standard
# deviation, about 57 times smaller, and its features are smaller by about as much: bringing them back by this factor
# lets his weights mean what they meant (content grows with its square, style with its fourth power).
GATYS_SCALE = 255 * sum(IMAGENET_STD) / 3
GATYS_CONTENT: Mapping[str, float] = MappingProxyType({
    "gatys": 1.0,  # authors' code
    "gatys-20": 20.0,  # ours: with 1 the face was lost in the one portrait it was tried on (128 px, VGG-16)
})  # fmt: skip


# --- what is wanted --------------------------------------------------------------------------------------------------


def gram_loss(style: Tensor) -> Loss:
    """Gatys et al. 2016: mean squared difference of Gram matrices, weighted 1e3 / channels^2 (authors' code)."""
    wanted, weight = gram(style), 1e3 / style.shape[1] ** 2
    # squares of the scale, as Gram matrices are squares of features; one square is taken out of the sum of both losses
    return lambda features: GATYS_SCALE**2 * weight * F.mse_loss(gram(features), wanted)


def central_moments_loss(style: Tensor, orders: int = 5) -> Loss:
    """CMD (Kalischek et al. 2021): distances of the vectors of means and central moments of sigmoid(features)."""

    def moments(features: Tensor) -> list[Tensor]:
        x = features.flatten(2).sigmoid()
        mean = x.mean(-1, keepdim=True)
        off = x - mean
        return [mean.squeeze(-1), *((off**k).mean(-1) for k in range(2, orders + 1))]

    wanted = moments(style)

    def loss(features: Tensor) -> Tensor:
        # a norm has no gradient where nothing is left to do; a tiny constant gives it one
        far = [((m - w).square().sum() + 1e-16).sqrt() for m, w in zip(moments(features), wanted, strict=True)]
        return torch.stack(far).sum()

    return loss


def sorted_loss(style: Tensor) -> Loss:
    """EFDM as a loss: squared distance of sorted values in units of the style's spread, so that layers count alike."""
    return lambda features: distribution_loss(features, style, unit="spread")


# --- how it is sought ------------------------------------------------------------------------------------------------


def lbfgs(pixels: Tensor, loss: Callable[[], Tensor], iterations: int, lr: float, progress: Progress) -> None:
    """L-BFGS with a line search; ``iterations`` counts evaluations, which is what takes time."""
    # the search for a step may look a few times more than it is allowed to
    solver = torch.optim.LBFGS(
        [pixels], lr=lr, max_iter=iterations, max_eval=iterations, history_size=50,
        tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe",
    )  # fmt: skip
    done = 0

    def evaluate() -> Tensor:
        nonlocal done
        solver.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        done = min(done + 1, iterations)
        progress(done, iterations, value.item())
        return value

    solver.step(evaluate)  # type: ignore[arg-type]


def adam(pixels: Tensor, loss: Callable[[], Tensor], iterations: int, lr: float, progress: Progress) -> None:
    """Adam whose rate falls to zero along a cosine: at a constant rate every pixel keeps trembling by as much."""
    solver = torch.optim.Adam([pixels], lr=lr)
    for done in range(iterations):
        solver.param_groups[0]["lr"] = lr * (0.5 + 0.5 * math.cos(math.pi * done / iterations))
        solver.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        solver.step()
        progress(done + 1, iterations, value.item())


SOLVERS: Mapping[str, Callable[..., None]] = MappingProxyType({"lbfgs": lbfgs, "adam": adam})


@dataclass(frozen=True)
class Optimiser:
    """One row: what is compared at which taps, how much content counts, and how the minimum is sought."""

    title: str
    style_taps: tuple[str, ...]
    style_loss: Callable[[Tensor], Loss]
    style_weight: float
    content_tap: str  # "" for no content term
    content_weight: float
    unit: str  # of the content: "value", or "spread" for shares of its variance
    solver: str
    lr: float
    iterations: int


def _at(kind: str, *depths: int) -> tuple[str, ...]:
    return tuple(f"{kind}{d}_1" for d in depths)


def _gatys(title: str, content_weight: float) -> Optimiser:
    return Optimiser(
        title, _at("relu", 1, 2, 3, 4, 5), gram_loss, 1.0, "relu4_2", content_weight, "value",
        solver="lbfgs", lr=1.0, iterations=500,
    )  # fmt: skip


OPTIMISERS: Mapping[str, Optimiser] = MappingProxyType({
    "gatys": _gatys("Gram matrices, weights of the authors' code (Gatys et al.)", GATYS_CONTENT["gatys"]),
    "gatys-20": _gatys(
        "Gatys et al. with content counted 20 times as much, chosen by eye on one portrait", GATYS_CONTENT["gatys-20"]
    ),
    "cmd": Optimiser(
        "central moments (Kalischek et al.)", _at("conv", 1, 2, 3, 4, 5), central_moments_loss, 1.0, "", 0.0, "value",
        solver="adam", lr=0.1, iterations=500,
    ),
    "efdm": Optimiser(
        "sorted values (the EFDM loss)", _at("relu", 1, 2, 3, 4, 5), sorted_loss, 1.0, "relu4_1", 0.1, "spread",
        solver="lbfgs", lr=1.0, iterations=300,
    ),
})  # fmt: skip


def optimise(
    content: Tensor,
    style: Tensor,
    method: str,
    encoder: VGG,
    *,
    iterations: int | None = None,
    style_weight: float | None = None,
    content_weight: float | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """The content ``(b, 3, h, w)`` in [0, 1] in the style ``(b or 1, 3, *, *)``, by changing pixels from the content on.

    ``encoder`` must reach relu5_1. Each picture of a batch is optimised by itself. What is not given is as in the row
    ``method`` of `OPTIMISERS`; ``progress(done, all, loss)`` is called after every evaluation.
    """
    check_choice("method", method, OPTIMISERS)
    _check(content, style, iterations)
    row = OPTIMISERS[method]
    weights = (
        row.style_weight if style_weight is None else style_weight,
        row.content_weight if content_weight is None else content_weight,
    )
    found: list[Tensor] = []
    steps = row.iterations if iterations is None else iterations
    with torch.inference_mode(False), torch.enable_grad():  # a caller's no_grad is meant for networks
        for i, one in enumerate(content):
            # clones: tensors made in inference mode cannot take part
            wanted = style[i if len(style) > 1 else 0][None].clone()
            done_before = i * steps

            def tell(done: int, _: int, loss: float, before: int = done_before) -> None:
                if progress is not None:
                    progress(before + done, len(content) * steps, loss)

            found.append(_optimise(one[None].clone(), wanted, row, encoder, steps, weights, tell))
    return torch.cat(found)


def _optimise(
    content: Tensor,
    style: Tensor,
    row: Optimiser,
    encoder: VGG,
    steps: int,
    weights: tuple[float, float],
    progress: Progress,
) -> Tensor:
    style_weight, content_weight = weights
    # in units of the standard deviation of ImageNet's pixels, in which learning rates of the literature are given
    unit = torch.tensor(IMAGENET_STD, dtype=content.dtype, device=content.device).view(1, 3, 1, 1)
    pixels = (content / unit).contiguous().requires_grad_()  # L-BFGS wants to see them as a row
    keep = bool(row.content_tap and content_weight)
    taps = (*row.style_taps, row.content_tap) if keep else row.style_taps
    with torch.no_grad():
        losses = [row.style_loss(f) for f in encoder.taps(style, row.style_taps)]
        kept = encoder.taps(content, (row.content_tap,))[0] if keep else None
        unit_of_content = 1.0 if kept is None or row.unit == "value" else float(kept.var().clamp_min(1e-12))
    order = _by_depth(taps)

    def loss() -> Tensor:
        images = (pixels * unit).contiguous(memory_format=torch.channels_last)  # faster convolutions
        seen = dict(zip(order, encoder.taps(images, order), strict=True))
        parts = [style_weight * f(seen[t]) for f, t in zip(losses, row.style_taps, strict=True)]
        if kept is not None:
            parts.append(content_weight * F.mse_loss(seen[row.content_tap], kept) / unit_of_content)
        return torch.stack(parts).sum()

    SOLVERS[row.solver](pixels, loss, steps, row.lr, progress)
    return (pixels.detach() * unit).clamp(0, 1)


def _by_depth(taps: tuple[str, ...]) -> tuple[str, ...]:
    """Without repetitions, in the order in which an encoder returns them."""
    return tuple(sorted(set(taps), key=lambda t: t[4:]))


def _check(content: Tensor, style: Tensor, iterations: int | None) -> None:
    for role, images in (("content", content), ("style", style)):
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"{role} has shape {tuple(images.shape)}; expected pictures (b, 3, h, w)")
        if min(images.shape[-2:]) < 16:
            raise ValueError(f"{role} is {tuple(images.shape[-2:])} pixels; relu5_1 needs at least 16 a side")
    if len(style) not in (1, len(content)):
        raise ValueError(f"there are {len(content)} contents and {len(style)} styles; give one style or one for each")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations={iterations}; expected 1 or more")
