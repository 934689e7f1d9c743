"""Channel statistics, and the matchers that transfer only mean and standard deviation: AdaIN, AdaMean and AdaStd."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.kernels.reference import tie_bounds
from efdm.ops.choices import ContentStats, Mean, StyleGrad, check_choice
from efdm.ops.layout import Rows, check_features, from_rows, to_rows, where_selected
from efdm.ops.styles import Partners, Style, partner_weights, style_rows

STYLE_EPS = 1e-5  # added to the variance in the authors' AdaIN code (style transfer)
MIX_EPS = 1e-6  # added to the variance in the authors' MixStyle code (augmentation)

_Source = Literal["content", "style"]  # whose mean or standard deviation the output has


class ChannelStats(NamedTuple):
    """Statistics of every channel of every sample, each ``(b, c)``."""

    mean: Tensor
    std: Tensor
    skewness: Tensor
    kurtosis: Tensor
    infinity_norm: Tensor


def _wide(rows: Rows) -> Tensor:
    """Return the values in at least float32, with zeros outside the mask to keep other values out of the gradient."""
    return _inside(upcast(rows.values), rows, 0)


def _inside(values: Tensor, rows: Rows, fill: float) -> Tensor:
    """Replace values outside the mask by ``fill``."""
    return values if rows.mask is None else torch.where(rows.mask, values, fill)


def _mean(values: Tensor, rows: Rows) -> Tensor:
    if rows.mask is None:
        return values.mean(-1, keepdim=True)
    count = rows.mask.sum(-1, keepdim=True).clamp(min=1)
    return _inside(values, rows, 0).sum(-1, keepdim=True) / count


def mean_and_variance(values: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return mean and unbiased variance over ``dims``, which are kept with size 1. A single value has variance 0."""
    count = math.prod([values.shape[d] for d in dims])  # a list, because torch.compile does not support a generator here
    if values.device.type == "cpu":
        # On the CPU, torch.var_mean is not vectorized; two vectorized passes take a third of the time. The mean of equal
        # values may be off by one bit.
        mean = values.mean(dims, keepdim=True)
        return mean, (values - mean).square().sum(dims, keepdim=True) / max(1, count - 1)
    variance, mean = torch.var_mean(values, dims, correction=min(1, count - 1), keepdim=True)
    return mean, variance


def moments_of_rows(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return mean and unbiased variance, ``(b, c, 1)``. A single value has variance 0."""
    values = _wide(rows)
    if rows.mask is None:  # torch.var_mean is exact for constant channels, which occur in flat images
        variance, mean = torch.var_mean(values, -1, correction=min(1, values.shape[-1] - 1), keepdim=True)
        return mean, variance
    mean = _mean(values, rows)
    count = rows.mask.sum(-1, keepdim=True)
    squares = _inside(values - mean, rows, 0).square().sum(-1, keepdim=True)
    return mean, squares / (count - 1).clamp(min=1)


def channel_stats(features: Tensor, *, channel_dim: int = 1, mask: Tensor | None = None) -> ChannelStats:
    r"""Return mean, standard deviation, skewness, kurtosis and infinity norm of every channel.

    With :math:`m_k = \frac1n\sum_i (x_i-\mu)^k` and the unbiased standard deviation :math:`s`, skewness is
    :math:`m_3/s^3`, kurtosis is :math:`m_4/s^4`, and the infinity norm is :math:`\max_i |x_i|`. A constant channel has
    skewness and kurtosis 0. The statistics are differentiable.

    >>> import torch
    >>> from efdm import channel_stats
    >>> stats = channel_stats(torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]]))
    >>> [round(s.item(), 3) for s in stats]
    [0.26, 0.207, -0.113, 0.966, 0.5]
    """
    rows = to_rows(features, "features", channel_dim, mask)
    values = _wide(rows)
    mean, variance = moments_of_rows(rows)
    centered = values - mean
    smallest = _inside(values, rows, torch.inf).amin(-1, keepdim=True)
    largest = _inside(values, rows, -torch.inf).amax(-1, keepdim=True)
    # two conditions: the mean of equal values may be off by one bit, and squares of tiny values underflow; NaN varies
    varies = (smallest != largest) & (variance != 0)
    scale = torch.where(varies, variance, 1).sqrt()  # the square root has no gradient at 0
    std = torch.where(varies, scale, 0)
    skewness = torch.where(varies, _mean((centered / scale) ** 3, rows), 0)
    kurtosis = torch.where(varies, _mean((centered / scale) ** 4, rows), 0)
    norm = values.abs().amax(-1, keepdim=True)
    return ChannelStats(*(s.squeeze(-1).to(features.dtype) for s in (mean, std, skewness, kurtosis, norm)))


def tied_share(features: Tensor, *, channel_dim: int = 1) -> Tensor:
    """Return the fraction of values that occur more than once in their channel, ``(b, c)``. Not differentiable.

    >>> import torch
    >>> from efdm import tied_share
    >>> tied_share(torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]))
    tensor([[0.8000]])
    """
    rows = to_rows(features, "features", channel_dim)
    start, end = tie_bounds(kernels.sort_rows(rows.values.detach()))
    return (end - start > 1).float().mean(-1)


def _match_moments(
    content: Tensor,
    style: Style,
    mean: _Source | Mean,
    std: _Source,
    eps: float,
    style_grad: StyleGrad,
    content_stats: ContentStats,
    channel_dim: int,
    content_mask: Tensor | None,
    style_mask: Tensor | None,
) -> Tensor:
    """Return the content with the mean of ``mean`` and the standard deviation of ``std``: "content" or "style".

    ``mean="scaled"`` scales the content without subtracting its mean.
    """
    check_choice("style_grad", style_grad)
    check_choice("content_stats", content_stats)
    x = to_rows(content, "content", channel_dim, content_mask)
    y = style_rows(style, x, content, channel_dim, style_mask)
    mean_x, var_x = moments_of_rows(x if content_stats == "flow" else x.with_values(x.values.detach()))
    mean_y, var_y = moments_of_rows(y if style_grad == "flow" else y.with_values(y.values.detach()))
    subtracted, added = _means(mean, mean_x, mean_y)
    out = _wide(x) - subtracted
    if std == "style":
        out = out / (var_x + eps).sqrt() * (var_y + eps).sqrt()
    out = (out + added).to(content.dtype)
    return from_rows(where_selected(out, x.values, x, y), content, channel_dim)


def _means(mean: _Source | Mean, content: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means to subtract before scaling and to add after it."""
    if mean == "scaled":
        return (torch.zeros_like(content),) * 2
    return content, {"content": content, "style": style}[mean]


def mix_partners(
    content: Tensor,
    partners: Partners,
    strength: float | Tensor,
    *,
    mean: _Source | Mean = "style",
    std: _Source = "style",
    eps: float = 0.0,
    style_grad: StyleGrad = "stop",
    content_stats: ContentStats = "stop",
    channel_dim: int = 1,
) -> Tensor:
    """Match samples with their partners and blend. Each sample's statistics are computed once, each value is scaled once.

    ``mean`` and ``std`` are those of `_match_moments`. Strength 0 returns the content exactly. A nearly constant channel far
    from zero loses digits, because its mean is subtracted after the multiplication by a large scale, as part of ``shift``.
    """
    check_choice("style_grad", style_grad)
    check_choice("content_stats", content_stats)
    check_features(content, "content", channel_dim)
    x = upcast(content)
    partner = partners.on(content)
    weight = partner_weights(strength, content).reshape(-1, *[1] * (x.ndim - 1))
    space = tuple(d for d in range(1, x.ndim) if d != channel_dim % x.ndim)
    stats = mean_and_variance(x if "flow" in (style_grad, content_stats) else x.detach(), space)
    mean_x, var_x = (s if content_stats == "flow" else s.detach() for s in stats)
    mean_y, var_y = ((s if style_grad == "flow" else s.detach()).index_select(0, partner) for s in stats)
    subtracted, added = _means(mean, mean_x, mean_y)
    scale = (var_y + eps).sqrt() / (var_x + eps).sqrt() if std == "style" else torch.ones_like(var_x)
    shift = added - subtracted * scale
    # at weight 0, zeros are selected rather than computed: the statistics of infinite values are NaN
    growth, shift = (torch.where(weight == 0, 0.0, weight * part) for part in (scale - 1, shift))
    return torch.addcmul(shift, x, 1 + growth).to(content.dtype)


def adain(
    content: Tensor,
    style: Style,
    *,
    eps: float = STYLE_EPS,
    style_grad: StyleGrad = "stop",
    content_stats: ContentStats = "flow",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match mean and standard deviation: :math:`(x-\mu_x)/s_x\cdot s_y+\mu_y`, with :math:`s=\sqrt{\mathrm{var}+\epsilon}`.

    The statistics of the content are differentiated with ``content_stats="flow"`` and treated as constants with ``"stop"``,
    as in MixStyle. Gradients flow to the style only with ``style_grad="flow"``. The other arguments are those of `efdm`.

    >>> import torch
    >>> from efdm import adain
    >>> x, y = torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]), torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]])
    >>> adain(x, y, eps=0)
    tensor([[[0.0617, 0.3096, 0.0617, 0.5574, 0.3096]]])
    """
    return _match_moments(
        content, style, "style", "style", eps, style_grad, content_stats, channel_dim, content_mask, style_mask
    )


def adamean(
    content: Tensor,
    style: Style,
    *,
    style_grad: StyleGrad = "stop",
    content_stats: ContentStats = "flow",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match only the mean: :math:`x-\mu_x+\mu_y`. Arguments and gradients are those of `adain`.

    >>> import torch
    >>> from efdm import adamean
    >>> adamean(torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[[10.0, 10.0, 13.0]]]))
    tensor([[[10., 11., 12.]]])
    """
    return _match_moments(
        content, style, "style", "content", 0.0, style_grad, content_stats, channel_dim, content_mask, style_mask
    )


def adastd(
    content: Tensor,
    style: Style,
    *,
    mean: Mean = "scaled",
    eps: float = STYLE_EPS,
    style_grad: StyleGrad = "stop",
    content_stats: ContentStats = "flow",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match only the standard deviation. Arguments and gradients are those of `adain`.

    ``mean="scaled"`` returns :math:`x/s_x\cdot s_y`, which scales the mean (the authors' style transfer code).
    ``mean="content"`` returns :math:`(x-\mu_x)/s_x\cdot s_y+\mu_x`, which keeps the mean (the authors' augmentation code).

    >>> import torch
    >>> from efdm import adastd
    >>> x, y = torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[[2.0, 4.0, 6.0]]])
    >>> adastd(x, y, eps=0), adastd(x, y, eps=0, mean="content")
    (tensor([[[2., 4., 6.]]]), tensor([[[0., 2., 4.]]]))
    """
    check_choice("mean", mean)
    return _match_moments(
        content, style, mean, "style", eps, style_grad, content_stats, channel_dim, content_mask, style_mask
    )
