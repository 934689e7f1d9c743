"""Style losses: how far the distribution of features is from a style's. Each is zero when its matcher has nothing to do.

A loss looks at a target that the features are drawn towards. The target is made from the features themselves and carries
no gradient: with the straight-through form the difference would have the gradient of zero. A style of another
floating-point type is brought to the features' own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.ops.choices import check_choice
from efdm.ops.layout import to_rows
from efdm.ops.match import efdm, histogram_match
from efdm.ops.moments import STYLE_EPS, moments_of_rows

NORMS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType({
    "l2": F.mse_loss,  # authors' code; the squared 2-Wasserstein distance
    "l1": F.l1_loss,  # the 1-Wasserstein distance
    "huber": partial(F.smooth_l1_loss, beta=0.1),  # l1 without its corner, for features in units of their spread
})  # fmt: skip
UNITS = ("value", "spread")
SMALLEST_SPREAD = 0.1  # of the channels' usual spread: a channel that hardly fires must not decide everything


def rows(features: Tensor) -> Tensor:
    """``(b, c, n)``: the values of every channel side by side, as the kernels want them."""
    return features.flatten(2).contiguous()


def _target(style: Tensor, features: Tensor) -> Tensor:
    return style.detach().to(features.dtype)


def _in_units(unit: str, features: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    """Both in units of the style's standard deviation, so that a weak channel counts as much as a strong one."""
    if unit == "value":
        return features, style
    variance = upcast(style).var(-1, keepdim=True, correction=0)  # of float16 the squares overflow, and 1e-12 is 0
    spread = (variance + SMALLEST_SPREAD**2 * variance.mean(1, keepdim=True) + 1e-12).sqrt().to(style.dtype)
    return features / spread, style / spread


def distribution_loss(features: Tensor, style: Tensor, *, norm: str = "l2", unit: str = "value") -> Tensor:
    """The distance between the sorted values of every channel: the EFDM loss.

    With ``norm="l2"`` the mean squared difference to the exactly matched features (authors' code); ``"l1"`` the mean
    1-Wasserstein distance. ``unit="spread"`` measures in the style channel's standard deviation. The style's size may
    differ; it carries no gradient.

    >>> import torch
    >>> from efdm.nn.losses import distribution_loss
    >>> x = torch.tensor([[[1.0, 3.0]]])
    >>> distribution_loss(x, x.flip(-1)), distribution_loss(x, x + 2)
    (tensor(0.), tensor(4.))
    """
    check_choice("norm", norm, NORMS)
    check_choice("unit", unit, UNITS)
    x, y = _in_units(unit, rows(features), rows(_target(style, features)))
    target = kernels.sort_match(x.detach(), y) if x.shape == y.shape else efdm(x.detach(), y)
    return NORMS[norm](x, target)


def sliced_loss(features: Tensor, style: Tensor, directions: Tensor, *, norm: str = "l2", unit: str = "value") -> Tensor:
    """`distribution_loss` along ``directions``, ``(k, channels)``, instead of along the channels.

    Channels can each have the style's distribution while their combinations do not. Fresh random directions at every
    step see the joint distribution: the sliced Wasserstein distance.
    """
    x, y = _in_units(unit, rows(features), rows(_target(style, features)))
    turned = directions.to(x.dtype)
    return distribution_loss(turned @ x, turned @ y, norm=norm, unit=unit)


def random_directions(count: int, channels: int, generator: torch.Generator | None = None) -> Tensor:
    """Unit vectors, uniformly distributed, on the generator's device."""
    device = None if generator is None else generator.device
    return F.normalize(torch.randn(count, channels, generator=generator, device=device), dim=1)


def histogram_loss(features: Tensor, style: Tensor) -> Tensor:
    """The mean squared difference to histogram-matched features."""
    return F.mse_loss(features, histogram_match(features.detach(), _target(style, features)))


def moments_loss(features: Tensor, style: Tensor, *, moments: tuple[str, ...] = ("mean", "std")) -> Tensor:
    """Mean squared differences of channel means and standard deviations (AdaIN's own loss), or of one of them."""
    x, y = _moments(features), _moments(_target(style, features))
    return torch.stack([F.mse_loss(x[m], y[m]) for m in moments]).sum()


def _moments(features: Tensor) -> dict[str, Tensor]:
    mean, variance = moments_of_rows(to_rows(features, "features", 1))
    return {"mean": mean, "std": (variance + STYLE_EPS).sqrt()}


# one row for every matcher: the loss that its decoder is trained with
STYLE_LOSSES: Mapping[str, Callable[..., Tensor]] = MappingProxyType({
    "efdm": distribution_loss,
    "hm": histogram_loss,
    "adain": moments_loss,
    "adamean": partial(moments_loss, moments=("mean",)),
    "adastd": partial(moments_loss, moments=("std",)),
})  # fmt: skip


def gram(features: Tensor) -> Tensor:
    """Mean products of channels, ``(b, c, c)``; of half types in float32, where sums of products do not overflow."""
    x = upcast(features.flatten(2))
    with torch.autocast(x.device.type, enabled=False):  # it would multiply in half precision again
        return x @ x.mT / x.shape[-1]


def unit_distances(features: Tensor, content: Tensor) -> Tensor:
    """Squared differences of feature vectors brought to length 1, position by position: ``(b, c, *space)``."""
    return (F.normalize(features, dim=1) - F.normalize(content, dim=1)).square()


def likeness_loss(features: Tensor, content: Tensor) -> Tensor:
    """How far the directions of feature vectors are apart, position by position: a content loss that ignores strength.

    The mean squared distance of unit vectors, as in LPIPS without its learned weights.
    """
    return unit_distances(features, content.detach()).sum(1).mean()
