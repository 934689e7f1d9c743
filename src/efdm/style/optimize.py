"""Style transfer by optimizing the pixels: slow, without training, a baseline for trained networks.

Each method is a row of `OPTIMIZERS`. The methods expect a VGG with torchvision's weights (not normalized), zero padding and
floor-mode pooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.models import VGG
from efdm.models.vgg import IMAGENET_STD
from efdm.nn.losses import distribution_loss, gram
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore

Loss = Callable[[Tensor], Tensor]  # features -> loss for a fixed style
Callback = Callable[[int, float], None]  # evaluations done, loss

# Gatys' weights are for a VGG with inputs from 0 to 255. Torchvision's inputs are divided by 255 and by the standard
# deviation, which makes inputs and features about 57 times smaller. Multiplying by this factor restores the meaning of the
# weights: the content loss scales with its square, the style loss with its fourth power.
GATYS_SCALE = 255 * sum(IMAGENET_STD) / 3
ORDERS = 5  # of the moments; Kalischek et al.


def gram_loss(style: Tensor, scale: float = GATYS_SCALE) -> Loss:
    """Return Gatys' style loss: the MSE of Gram matrices with weight 1e3 / channels^2 (authors' code).

    ``scale`` restores the scale of the features that the weight is meant for.
    """
    target, weight = gram(style), 1e3 / style.shape[1] ** 2
    # Gram matrices are quadratic in the features, so the MSE scales with scale**4; the common factor scale**2 of content and
    # style loss is omitted
    return lambda features: scale**2 * weight * F.mse_loss(gram(features), target)


def central_moments_loss(style: Tensor) -> Loss:
    """Return the CMD loss (Kalischek et al. 2021): distances of means and central moments of sigmoid(features)."""

    def moments(features: Tensor) -> list[Tensor]:
        x = features.flatten(2).sigmoid()
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        return [mean.squeeze(-1), *((centred**k).mean(-1) for k in range(2, ORDERS + 1))]

    target = moments(style)

    def loss(features: Tensor) -> Tensor:
        # the constant keeps the gradient of the norm finite at zero
        distances = [((m - t).square().sum() + 1e-16).sqrt() for m, t in zip(moments(features), target, strict=True)]
        return torch.stack(distances).sum()

    return loss


def sorted_loss(style: Tensor) -> Loss:
    """Return EFDM as a loss: the MSE of sorted values in units of the style's standard deviation."""
    return lambda features: distribution_loss(features, style, unit="spread")


def lbfgs(pixels: Tensor, loss: Callable[[], Tensor], iterations: int, lr: float, callback: Callback) -> None:
    """Minimize with L-BFGS and a line search. ``iterations`` counts evaluations of the loss, which dominate the time."""
    # the line search may exceed max_eval by a few evaluations
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
        callback(done, value.item())
        return value

    solver.step(evaluate)  # type: ignore[arg-type]


def adam(pixels: Tensor, loss: Callable[[], Tensor], iterations: int, lr: float, callback: Callback) -> None:
    """Minimize with Adam and a cosine schedule; with a constant learning rate the pixels keep oscillating."""
    solver = torch.optim.Adam([pixels], lr=lr)
    for done in range(iterations):
        solver.param_groups[0]["lr"] = lr * (0.5 + 0.5 * math.cos(math.pi * done / iterations))
        solver.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        solver.step()
        callback(done + 1, value.item())


@dataclass(frozen=True)
class Optimizer:
    """A row of `OPTIMIZERS`."""

    title: str
    style_taps: tuple[str, ...]
    style_loss: Callable[[Tensor], Loss]
    content_tap: str
    content_weight: float  # 0: no content term
    unit: Literal["value", "spread"]  # content loss as MSE, or as a fraction of the content features' variance
    solver: Callable[[Tensor, Callable[[], Tensor], int, float, Callback], None]
    lr: float
    iterations: int


RELUS, CONVS = (tuple(f"{kind}{block}_1" for block in range(1, 6)) for kind in ("relu", "conv"))
OPTIMIZERS: Mapping[str, Optimizer] = {
    "gatys": Optimizer(
        "Gram matrices, weights of the authors' code (Gatys et al.)", RELUS, gram_loss, "relu4_2", 1.0, "value", lbfgs, 1.0,
        500,
    ),
    "cmd": Optimizer(
        "central moments (Kalischek et al.)", CONVS, central_moments_loss, "", 0.0, "value", adam, 0.1, 500
    ),
    "efdm": Optimizer("sorted values (the EFDM loss)", RELUS, sorted_loss, "relu4_1", 0.1, "spread", lbfgs, 1.0, 300),
}  # fmt: skip


def optimize(
    content: Tensor,
    style: Tensor,
    method: str | Optimizer,
    encoder: VGG,
    *,
    iterations: int | None = None,
    progress: Report = ignore,
) -> Tensor:
    """Stylize the content ``(b, 3, h, w)`` in [0, 1] with the style ``(b or 1, 3, *, *)`` by optimizing its pixels.

    Each image of a batch is optimized separately, starting from the content. ``encoder`` must include the layers of
    the method; the rows of `OPTIMIZERS` need relu5_1. ``iterations`` default to those of ``method``. ``progress`` receives
    a report after every evaluation.
    """
    if isinstance(method, str):
        check_choice("method", method, OPTIMIZERS)
        method = OPTIMIZERS[method]
    _check_arguments(content, style, iterations)
    results: list[Tensor] = []
    steps = method.iterations if iterations is None else iterations
    with torch.inference_mode(False), torch.enable_grad():  # also inside a caller's no_grad
        for i, one in enumerate(content):
            # clones: inference-mode tensors cannot take part in autograd
            target = style[i if len(style) > 1 else 0][None].clone()

            def callback(done: int, loss: float, before: int = i * steps) -> None:
                progress(Progress("optimizing", before + done, len(content) * steps, {"loss": loss}))

            results.append(_optimize(one[None].clone(), target, method, encoder, steps, callback))
    return torch.cat(results)


def _optimize(content: Tensor, style: Tensor, row: Optimizer, encoder: VGG, steps: int, callback: Callback) -> Tensor:
    # published learning rates are for pixels in units of ImageNet's standard deviation
    unit = torch.tensor(IMAGENET_STD, dtype=content.dtype, device=content.device).view(1, 3, 1, 1)
    pixels = (content / unit).contiguous().requires_grad_()  # L-BFGS flattens its parameters
    with torch.no_grad():
        losses = list(zip(row.style_taps, map(row.style_loss, encoder.taps(style, row.style_taps)), strict=True))
        if row.content_weight:
            (target,) = encoder.taps(content, (row.content_tap,))
            scale = 1.0 if row.unit == "value" else float(target.var().clamp_min(1e-12))
            losses.append((row.content_tap, lambda x: row.content_weight * F.mse_loss(x, target) / scale))
    order = sorted({tap for tap, _ in losses}, key=lambda tap: tap[4:])  # by depth, as the encoder returns them

    def loss() -> Tensor:
        images = (pixels * unit).contiguous(memory_format=torch.channels_last)  # faster convolutions
        features = dict(zip(order, encoder.taps(images, order), strict=True))
        return torch.stack([part(features[tap]) for tap, part in losses]).sum()

    row.solver(pixels, loss, steps, row.lr, callback)
    return (pixels.detach() * unit).clamp(0, 1)


def _check_arguments(content: Tensor, style: Tensor, iterations: int | None) -> None:
    for role, images in (("content", content), ("style", style)):
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[-2:]) < 16:
            expected = "(b, 3, h, w) with sides of at least 16 pixels, for relu5_1"
            raise ValueError(f"{role} has shape {tuple(images.shape)}; expected {expected}")
    if len(style) not in (1, len(content)):
        raise ValueError(f"expected 1 or {len(content)} styles for {len(content)} contents, got {len(style)}")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
