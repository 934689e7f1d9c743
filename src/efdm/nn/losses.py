"""Style losses: distances between the distribution of features and that of a style.

Every loss is zero for features that its matcher has already matched. The target is computed from the features themselves and
detached, because with a straight-through gradient the loss would have a gradient of zero. A style of another floating-point
dtype is converted to the dtype of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.ops.choices import check_choice
from efdm.ops.layout import to_rows
from efdm.ops.match import efdm, histogram_match
from efdm.ops.moments import STYLE_EPS, moments_of_rows

Norm = Literal["l2", "l1", "huber"]
Unit = Literal["value", "spread"]
UNITS = get_args(Unit)  # not in a function, where torch.compile does not support it in torch 2.6
NORMS: Mapping[Norm, Callable[[Tensor, Tensor], Tensor]] = {
    "l2": F.mse_loss,  # authors' code; the squared 2-Wasserstein distance
    "l1": F.l1_loss,  # the 1-Wasserstein distance
    "huber": partial(F.smooth_l1_loss, beta=0.1),  # beta for features in units of their standard deviation
}  # fmt: skip
SMALLEST_SPREAD = 0.1  # times the channels' typical deviation: bounds the weight of channels that are almost constant


def rows(features: Tensor) -> Tensor:
    """Return contiguous rows ``(b, c, n)``, as the kernels require."""
    return features.flatten(2).contiguous()


def _target(style: Tensor, features: Tensor) -> Tensor:
    return style.detach().to(features.dtype)


def _in_units(unit: Unit, features: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    """Divide both by the style's standard deviation if ``unit`` is ``"spread"``, so that all channels have equal weight."""
    if unit == "value":
        return features, style
    variance = upcast(style).var(-1, keepdim=True, correction=0)  # in float16, squares overflow and 1e-12 underflows to 0
    spread = (variance + SMALLEST_SPREAD**2 * variance.mean(1, keepdim=True) + 1e-12).sqrt().to(style.dtype)
    return features / spread, style / spread


def distribution_loss(features: Tensor, style: Tensor, *, norm: Norm = "l2", unit: Unit = "value") -> Tensor:
    """Compute the distance between the sorted values of every channel: the EFDM loss.

    ``norm="l2"`` is the mean squared difference to the exactly matched features (authors' code), ``"l1"`` the mean
    1-Wasserstein distance. ``unit="spread"`` measures in standard deviations of the style's channel. The style may have
    another size and receives no gradient.

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


def sliced_loss(features: Tensor, style: Tensor, directions: Tensor, *, norm: Norm = "l2", unit: Unit = "value") -> Tensor:
    """Compute `distribution_loss` along ``directions`` of shape ``(k, channels)``: the sliced Wasserstein distance.

    Matching each channel does not match combinations of channels. Random directions that are redrawn in every step measure
    the joint distribution.
    """
    x, y = _in_units(unit, rows(features), rows(_target(style, features)))
    projection = directions.to(x.dtype)
    return distribution_loss(projection @ x, projection @ y, norm=norm, unit=unit)


def random_directions(count: int, channels: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw uniformly distributed unit vectors on the generator's device."""
    device = None if generator is None else generator.device
    return F.normalize(torch.randn(count, channels, generator=generator, device=device), dim=1)


def histogram_loss(features: Tensor, style: Tensor) -> Tensor:
    """Compute the mean squared difference to histogram-matched features."""
    return F.mse_loss(features, histogram_match(features.detach(), _target(style, features)))


def moments_loss(features: Tensor, style: Tensor, *, moments: tuple[str, ...] = ("mean", "std")) -> Tensor:
    """Sum the mean squared differences of channel means and standard deviations: AdaIN's style loss."""
    x, y = _moments(features), _moments(_target(style, features))
    return torch.stack([F.mse_loss(x[m], y[m]) for m in moments]).sum()


def _moments(features: Tensor) -> dict[str, Tensor]:
    mean, variance = moments_of_rows(to_rows(features, "features", 1))
    return {"mean": mean, "std": (variance + STYLE_EPS).sqrt()}


# the loss that trains the decoder of each matcher
STYLE_LOSSES: Mapping[str, Callable[..., Tensor]] = {
    "efdm": distribution_loss,
    "hm": histogram_loss,
    "adain": moments_loss,
    "adamean": partial(moments_loss, moments=("mean",)),
    "adastd": partial(moments_loss, moments=("std",)),
}  # fmt: skip


def gram(features: Tensor) -> Tensor:
    """Compute the Gram matrix ``(b, c, c)``, the mean products of channels, in float32 for half types to avoid overflow."""
    x = upcast(features.flatten(2))
    with torch.autocast(x.device.type, enabled=False):  # autocast would multiply in half precision
        return x @ x.mT / x.shape[-1]


def unit_distances(features: Tensor, content: Tensor) -> Tensor:
    """Compute squared differences of feature vectors normalized to length 1 at every position, ``(b, c, *space)``."""
    return (F.normalize(features, dim=1) - F.normalize(content, dim=1)).square()


def likeness_loss(features: Tensor, content: Tensor) -> Tensor:
    """Compute the mean squared distance of normalized feature vectors, as LPIPS without learned weights.

    This content loss ignores the length of the vectors.
    """
    return unit_distances(features, content.detach()).sum(1).mean()
