"""Metrics of stylized images: content distances and style distances, one number per image.

Content is compared position by position (LPIPS, edges), style by distributions over all positions (sorted values, Gram
matrices, moments). The metrics are pure functions of features; `Metrics` holds the networks that extract the features.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels
from efdm.models import VGG
from efdm.models.weights import MissingWeights, load_encoder, read
from efdm.nn.losses import gram, rows, unit_distances
from efdm.ops import ChannelStats, channel_stats
from efdm.ops.choices import check_choice
from efdm.ops.resample import resample_sorted
from efdm.style.color import luminance
from efdm.style.objective import STYLE_TAPS

LPIPS_TAPS = ("relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3")  # LPIPS, VGG-16
HEADS = Path("weights", "v0.1", "vgg.pth")  # in PyPI's lpips
DEAD = 1e-3  # standard deviation below which a VGG-16 channel is skipped as constant; typical values are 0.5 to 4
FAINT = 1e-2  # share of the layer's standard deviation below which a channel counts as faint
NAMES = (
    "lpips", "edge_ssim", "style_distance", "style_distance_robust", "gram_distance",
    *(f"{name}_error" for name in ChannelStats._fields),
)  # fmt: skip
Features = Sequence[Tensor]


def lpips(features: Features, content: Features, heads: Features) -> Tensor:
    """Return LPIPS (Zhang et al. 2018), ``(b,)``: distances of unit-length features weighted by learned heads."""
    layers = zip(features, content, heads, strict=True)
    return torch.stack([(unit_distances(f, c) * h.view(1, -1, 1, 1)).sum(1).mean((1, 2)) for f, c, h in layers]).sum(0)


def lpips_heads() -> list[Tensor]:
    """Return the linear heads of PyPI's `lpips` for VGG-16, one vector per tap. The package itself is not imported."""
    spec = importlib.util.find_spec("lpips")
    if spec is None or spec.origin is None:
        raise MissingWeights("the LPIPS heads come with the package lpips; run: pip install --no-deps lpips")
    state = read(Path(spec.origin).parent / HEADS)
    return [value.flatten().float() for _, value in sorted(state.items())]


def edges(images: Tensor) -> Tensor:
    """Return the Sobel magnitude of the luminance, ``(b, 1, h, w)``; a step from black to white has magnitude 1."""
    grey = F.pad(luminance(images), (1, 1, 1, 1), mode="replicate")
    across = torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=images.dtype, device=images.device) / 4
    slopes = F.conv2d(grey, torch.stack([across, across.T])[:, None])
    return slopes.square().sum(1, keepdim=True).sqrt()


def ssim(a: Tensor, b: Tensor) -> Tensor:
    """Return the structural similarity (Wang et al. 2004) of grey images ``(b, 1, h, w)``, ``(b,)``, without padding.

    The Gaussian window has 11 x 11 pixels and shrinks to the image where the image is smaller.
    """

    def window(length: int) -> Tensor:
        at = torch.arange(length, dtype=a.dtype, device=a.device) - (length - 1) / 2
        weights = torch.exp(-at.square() / (2 * 1.5**2))
        return (weights / weights.sum()).view(1, 1, 1, -1)

    down, across = (window(min(11, length)) for length in a.shape[-2:])

    def local(x: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(x, down.mT), across)

    mean_a, mean_b = local(a), local(b)
    # rounding can make a variance slightly negative
    var_a, var_b = (local(a * a) - mean_a**2).clamp_min(0), (local(b * b) - mean_b**2).clamp_min(0)
    covariance = local(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2  # Wang et al., for values in [0, 1]
    similar = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return (similar / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean((1, 2, 3))


def edge_ssim(images: Tensor, content: Tensor) -> Tensor:
    """Return the `ssim` of the luminance edges, ``(b,)``: how much of the content's drawing is preserved."""
    return ssim(edges(images), edges(content))


def style_distance(features: Tensor, style: Tensor, *, faint: str = "kept") -> Tensor:
    """Return the 1-D Wasserstein distance per channel in units of the style's standard deviation, averaged: ``(b,)``.

    A shift by one standard deviation gives a distance of 1. Sizes may differ. Channels that are constant in the style have
    no unit and are skipped; the result is NaN if all channels are. ``faint="dropped"`` also skips channels that vary a
    hundred times less than their layer, because a single such channel can dominate the mean: any activation in the output is
    hundreds of standard deviations away.
    """
    check_choice("faint", faint, ("kept", "dropped"))
    x, y = kernels.sort_rows(rows(features.float())), kernels.sort_rows(rows(style.float()))
    distance = (x - resample_sorted(y, x.shape[-1])).abs().mean(-1)
    spread = y.std(-1)
    varying = spread > DEAD
    if faint == "dropped":
        varying = varying & (spread > FAINT * spread.square().mean(1, keepdim=True).sqrt())
    return _mean_of_varying(distance / spread, varying)


def gram_distance(features: Tensor, style: Tensor) -> Tensor:
    """Return the Frobenius distance of the Gram matrices relative to the norm of the style's, ``(b,)``."""
    x, y = gram(features.float()), gram(style.float())
    return (x - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1).clamp_min(1e-12)


def moment_errors(features: Tensor, style: Tensor) -> dict[str, Tensor]:
    """Return the relative error of each channel statistic, ``(b,)``, over the channels that vary in the style.

    The error is a ratio of means, because in a mean of ratios a skewness near 0 would dominate. NaN if no channel varies.
    """
    x, y = channel_stats(features.float()), channel_stats(style.float())
    varying = y.std > DEAD
    errors = {}
    for name in ChannelStats._fields:
        actual, target = getattr(x, name), getattr(y, name)
        error, size = (_mean_of_varying(values.abs(), varying) for values in (actual - target, target))
        errors[name] = error / size.clamp_min(1e-12)
    return errors


def _mean_of_varying(values: Tensor, varying: Tensor) -> Tensor:
    # 0 / 0 = NaN without varying channels, because a distance of 0 would mean a perfect match
    return torch.where(varying, values, 0).sum(1) / varying.sum(1)


@dataclass(frozen=True)
class MetricFeatures:
    """A batch of images and the features that the metrics compare."""

    images: Tensor
    style: list[Tensor]
    content: list[Tensor]


@dataclass(frozen=True, eq=False)
class Metrics:
    """The loss network of the metrics, and the heads of LPIPS."""

    vgg: VGG
    heads: list[Tensor]

    @torch.inference_mode()
    def extract(self, images: Tensor) -> MetricFeatures:
        """Return the features of images ``(b, 3, h, w)`` in [0, 1]."""
        taps = sorted({*STYLE_TAPS, *LPIPS_TAPS})
        features = dict(zip(taps, self.vgg.taps(images, taps), strict=True))
        return MetricFeatures(images, [features[t] for t in STYLE_TAPS], [features[t] for t in LPIPS_TAPS])

    @torch.inference_mode()
    def measure(self, output: MetricFeatures, content: MetricFeatures, style: MetricFeatures) -> dict[str, Tensor]:
        """Return every metric of `NAMES`, ``(b,)``. Style metrics are averaged over the layers."""
        if output.images.shape != content.images.shape:
            shapes = f"{tuple(output.images.shape)} and {tuple(content.images.shape)}"
            raise ValueError(f"output and content must have the same shape, got {shapes}; resize the output")
        content_metrics = {
            "lpips": lpips(output.content, content.content, self.heads),
            "edge_ssim": edge_ssim(output.images, content.images),
        }
        layers = [_style_metrics(o, s) for o, s in zip(output.style, style.style, strict=True)]
        return content_metrics | {name: torch.stack([layer[name] for layer in layers]).mean(0) for name in layers[0]}


def _style_metrics(features: Tensor, style: Tensor) -> dict[str, Tensor]:
    return {
        "style_distance": style_distance(features, style),
        "style_distance_robust": style_distance(features, style, faint="dropped"),
        "gram_distance": gram_distance(features, style),
        **{f"{name}_error": error for name, error in moment_errors(features, style).items()},
    }


def load_metrics(*, vgg: str | Path | None = None, device: str | torch.device = "cpu") -> Metrics:
    """Load VGG-16 from ``vgg``, by default from the weights folders, and the heads of LPIPS."""
    # zero padding and floor-mode pooling, as in ImageNet training
    encoder = load_encoder("vgg16", LPIPS_TAPS[-1], path=vgg, padding="zeros", pooling="floor").to(device)
    heads = [h.to(device) for h in lpips_heads()]
    return Metrics(encoder.requires_grad_(False).to(memory_format=torch.channels_last), heads)  # type: ignore[call-overload]
