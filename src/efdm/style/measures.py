"""How good is a stylised picture? Distances of its content and of its style, one number for each picture.

Content is compared position by position (LPIPS; edges), style by distributions over all positions (sorted values, Gram
matrices, moments). The functions are pure; a `Lens` holds the networks that they look through.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels
from efdm.models import VGG
from efdm.models.alexnet import TAPS as ALEXNET_TAPS
from efdm.models.alexnet import AlexNet, load_alexnet
from efdm.models.weights import MissingWeights, load_encoder, read
from efdm.nn.losses import gram, rows, unit_distances
from efdm.ops import ChannelStats, channel_stats
from efdm.ops.resample import resample_sorted
from efdm.style.color import luminance
from efdm.style.objective import STYLE_TAPS

LPIPS_TAPS = ("relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3")  # LPIPS, VGG-16
HEADS: Mapping[str, str] = MappingProxyType({"vgg16": "vgg.pth", "alexnet": "alex.pth"})  # in PyPI's lpips, weights/v0.1
DEAD = 1e-3  # a channel of VGG-16 with a smaller standard deviation has no distribution to compare; usual ones are 0.5 to 4
FAINT = 1e-2  # of the layer's spread
Features = Sequence[Tensor]


# --- content ---------------------------------------------------------------------------------------------------------


def lpips(features: Features, content: Features, heads: Features) -> Tensor:
    """Learned perceptual distance (Zhang et al. 2018), ``(b,)``: differences of unit vectors weighted by learned heads."""
    far = [
        (unit_distances(f, c) * head.view(1, -1, 1, 1)).sum(1).mean((1, 2))
        for f, c, head in zip(features, content, heads, strict=True)
    ]
    return torch.stack(far).sum(0)


def likeness(features: Features, content: Features) -> Tensor:
    """`lpips` without learned heads, ``(b,)``: the mean over layers of the squared distance of unit vectors."""
    far = [unit_distances(f, c).sum(1).mean((1, 2)) for f, c in zip(features, content, strict=True)]
    return torch.stack(far).mean(0)


def lpips_heads(network: str = "vgg16") -> list[Tensor]:
    """The linear heads that PyPI's `lpips` ships, one vector for each tap. Only its file is read, nothing is imported."""
    if network not in HEADS:
        raise ValueError(f"LPIPS has no heads for {network!r}; choose one of {', '.join(HEADS)}")
    spec = importlib.util.find_spec("lpips")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    for place in places:
        file = Path(place) / "weights" / "v0.1" / HEADS[network]
        if file.is_file():
            return [value.flatten().float() for _, value in sorted(read(file).items())]
    raise MissingWeights("LPIPS needs the learned heads of the package lpips: pip install --no-deps lpips")


def edges(images: Tensor) -> Tensor:
    """The strength of luminance edges, ``(b, 1, h, w)``: Sobel magnitudes, 1 for a step from black to white."""
    grey = F.pad(luminance(images), (1, 1, 1, 1), mode="replicate")
    across = torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=images.dtype, device=images.device) / 4
    slopes = F.conv2d(grey, torch.stack([across, across.T])[:, None])
    return slopes.square().sum(1, keepdim=True).sqrt()


def ssim(a: Tensor, b: Tensor, *, side: int = 11, sigma: float = 1.5, scale: float = 1.0) -> Tensor:
    """Structural similarity (Wang et al. 2004), ``(b,)``, 1 for equal pictures: gaussian windows that lie inside.

    ``scale`` is the range of values. Pictures smaller than a window are seen through one window as large as they are.
    """
    if a.shape != b.shape:
        raise ValueError(f"pictures of shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be compared; resize one")
    channels = a.shape[1]

    def window(length: int) -> Tensor:
        at = torch.arange(length, dtype=a.dtype, device=a.device) - (length - 1) / 2
        weights = torch.exp(-at.square() / (2 * sigma**2))
        return (weights / weights.sum()).repeat(channels, 1, 1, 1)

    down, across = (window(min(side, length)) for length in a.shape[-2:])

    def local(x: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(x, down.mT, groups=channels), across, groups=channels)

    mean_a, mean_b = local(a), local(b)
    # rounding may leave a variance a little below zero, which is none
    var_a, var_b = (local(a * a) - mean_a**2).clamp_min(0), (local(b * b) - mean_b**2).clamp_min(0)
    together = local(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * scale) ** 2, (0.03 * scale) ** 2  # Wang et al.
    similar = (2 * mean_a * mean_b + c1) * (2 * together + c2)
    return (similar / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean((1, 2, 3))


def edge_ssim(images: Tensor, content: Tensor) -> Tensor:
    """How much of the drawing is left, ``(b,)``: `ssim` of the luminance edges. 1 for equal pictures."""
    return ssim(edges(images), edges(content))


# --- style -----------------------------------------------------------------------------------------------------------


def style_distance(features: Tensor, style: Tensor, *, faint: str = "kept") -> Tensor:
    """The 1-D Wasserstein distance of each channel in units of the style channel's standard deviation, averaged: ``(b,)``.

    0 is a perfect match; a shift by one standard deviation is 1. Sizes may differ. Channels that the style leaves dead
    have no unit and are left out; NaN if all of them are. ``faint="dropped"`` also leaves out those that vary a hundred
    times less than their layer: in such units a channel that wakes up in the output is hundreds of standard deviations
    off, and one of them can decide the mean of a whole picture.
    """
    if faint not in ("kept", "dropped"):
        raise ValueError(f"faint={faint!r} is not one of 'kept', 'dropped'")
    x, y = kernels.sort_rows(rows(features.float())), kernels.sort_rows(rows(style.float()))
    distance = (x - resample_sorted(y, x.shape[-1])).abs().mean(-1)
    spread = y.std(-1)
    live = _live(spread)
    if faint == "dropped":
        live = live & (spread > FAINT * spread.square().mean(1, keepdim=True).sqrt())
    return _mean_of_live(distance / spread, live)


def gram_distance(features: Tensor, style: Tensor) -> Tensor:
    """The relative distance of Gram matrices, ``(b,)``: Frobenius norm of the difference by that of the style's."""
    x, y = gram(features.float()), gram(style.float())
    return (x - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1).clamp_min(1e-12)


def moment_errors(features: Tensor, style: Tensor) -> dict[str, Tensor]:
    """Relative errors of channel statistics, ``(b,)`` each: mean difference by mean size, over the style's live channels.

    A quotient of means and not a mean of quotients: a skewness near 0 would decide everything. NaN if all are dead.
    """
    x, y = channel_stats(features.float()), channel_stats(style.float())
    live = _live(y.std)
    errors = {}
    for name in ChannelStats._fields:
        have, want = getattr(x, name), getattr(y, name)
        errors[name] = _mean_of_live((have - want).abs(), live) / _mean_of_live(want.abs(), live).clamp_min(1e-12)
    return errors


def _live(spread: Tensor) -> Tensor:
    return spread > DEAD


def _mean_of_live(values: Tensor, live: Tensor) -> Tensor:
    # 0 / 0 where none is live: nothing was compared, and a distance of 0 would be a perfect match
    return torch.where(live, values, 0).sum(1) / live.sum(1)


# --- all of it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A batch of pictures, and what the networks of a lens see in them."""

    images: Tensor
    style: list[Tensor]
    content: list[Tensor]
    content_alexnet: list[Tensor]


@dataclass(frozen=True, eq=False)
class Lens:
    """The networks for measuring. ``heads`` None: `likeness` instead of LPIPS. ``alexnet`` adds a second LPIPS."""

    vgg: VGG
    heads: list[Tensor] | None = None
    alexnet: AlexNet | None = None
    alexnet_heads: list[Tensor] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The measures it gives."""
        content = ("likeness",) if self.heads is None else ("lpips",)
        second = () if self.alexnet is None or self.alexnet_heads is None else ("lpips_alexnet",)
        errors = (f"{name}_error" for name in ChannelStats._fields)
        return (*content, *second, "edge_ssim", "style_distance", "style_distance_firm", "gram_distance", *errors)

    @torch.inference_mode()
    def see(self, images: Tensor) -> Seen:
        """Pictures ``(b, 3, h, w)`` in [0, 1]."""
        taps = sorted({*STYLE_TAPS, *LPIPS_TAPS})
        found = dict(zip(taps, self.vgg.taps(images, taps), strict=True))
        second = [] if self.alexnet is None else self.alexnet.taps(images, ALEXNET_TAPS)
        return Seen(images, [found[t] for t in STYLE_TAPS], [found[t] for t in LPIPS_TAPS], second)

    @torch.inference_mode()
    def measure(self, output: Seen, content: Seen, style: Seen) -> dict[str, Tensor]:
        """Every measure by name, ``(b,)``; those of style are means over the layers."""
        if output.images.shape != content.images.shape:
            shapes = f"{tuple(output.images.shape)} and {tuple(content.images.shape)}"
            raise ValueError(f"output and content have shapes {shapes}; bring the output to the content's size")
        measures: dict[str, Tensor] = {}
        if self.heads is not None:
            measures["lpips"] = lpips(output.content, content.content, self.heads)
        else:
            measures["likeness"] = likeness(output.content, content.content)
        if self.alexnet is not None and self.alexnet_heads is not None:
            measures["lpips_alexnet"] = lpips(output.content_alexnet, content.content_alexnet, self.alexnet_heads)
        measures["edge_ssim"] = edge_ssim(output.images, content.images)
        layers = list(zip(output.style, style.style, strict=True))
        measures["style_distance"] = torch.stack([style_distance(o, s) for o, s in layers]).mean(0)
        firm = [style_distance(o, s, faint="dropped") for o, s in layers]
        measures["style_distance_firm"] = torch.stack(firm).mean(0)
        measures["gram_distance"] = torch.stack([gram_distance(o, s) for o, s in layers]).mean(0)
        errors = [moment_errors(o, s) for o, s in layers]
        for name in ChannelStats._fields:
            measures[f"{name}_error"] = torch.stack([e[name] for e in errors]).mean(0)
        return measures


def open_lens(
    *,
    vgg: str | Path | None = None,
    alexnet: str | Path | None = None,
    content: str = "lpips",
    device: str | torch.device = "cpu",
) -> Lens:
    """A lens with the weights of ``vgg`` (VGG-16; default: looked up) and, if a file is given, ``alexnet``.

    ``content="likeness"`` does without the learned heads of LPIPS.
    """
    if content not in ("lpips", "likeness"):
        raise ValueError(f"content={content!r} is not one of 'lpips', 'likeness'")
    # as it was trained: zeros at the borders, and pooling that drops odd edges
    encoder = load_encoder("vgg16", LPIPS_TAPS[-1], path=vgg, padding="zeros", pooling="floor").to(device)
    heads = [h.to(device) for h in lpips_heads("vgg16")] if content == "lpips" else None
    second = None if alexnet is None else load_alexnet(read(alexnet)).to(device)
    second_heads = [h.to(device) for h in lpips_heads("alexnet")] if second is not None and heads is not None else None
    return Lens(encoder.requires_grad_(False).to(memory_format=torch.channels_last), heads, second, second_heads)  # type: ignore[call-overload]
