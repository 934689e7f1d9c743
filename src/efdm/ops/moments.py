"""Statistics of a channel, and the matchers that move only some of them: AdaIN, AdaMean, AdaStd."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.ops.choices import check_choice
from efdm.ops.layout import Rows, check_features, from_rows, to_rows, where_selected
from efdm.ops.styles import Partners, Style, style_rows
from efdm.ops.ties import tie_bounds

STYLE_EPS = 1e-5  # AdaIN's own code, for style transfer; added to the variance
MIX_EPS = 1e-6  # MixStyle's own code, for augmentation


class ChannelStats(NamedTuple):
    """Statistics of every (sample, channel), each ``(b, c)``."""

    mean: Tensor
    std: Tensor
    skewness: Tensor
    kurtosis: Tensor
    infinity_norm: Tensor


def _wide(rows: Rows) -> Tensor:
    """The values, half precision as float32, with zeros outside the mask: what is there must not touch a gradient."""
    return _inside(upcast(rows.values), rows, 0)


def _inside(values: Tensor, rows: Rows, fill: float) -> Tensor:
    return values if rows.mask is None else torch.where(rows.mask, values, fill)


def _mean(values: Tensor, rows: Rows) -> Tensor:
    if rows.mask is None:
        return values.mean(-1, keepdim=True)
    count = rows.mask.sum(-1, keepdim=True).clamp(min=1)
    return _inside(values, rows, 0).sum(-1, keepdim=True) / count


def mean_and_variance(values: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """For training: over ``dims``, which stay with length 1. The variance is unbiased; a single value has variance 0."""
    count = math.prod([values.shape[d] for d in dims])  # a list: compilers know no generators here
    if values.device.type == "cpu":
        # torch's own goes from value to value there; to go over them twice, with vectors, takes a third of its time. But the
        # mean of equal values may be off by a bit.
        mean = values.mean(dims, keepdim=True)
        return mean, (values - mean).square().sum(dims, keepdim=True) / max(1, count - 1)
    variance, mean = torch.var_mean(values, dims, correction=min(1, count - 1), keepdim=True)
    return mean, variance


def moments_of_rows(rows: Rows) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance, ``(b, c, 1)``; a single value has variance 0."""
    values = _wide(rows)
    if rows.mask is None:  # torch's own: exact for channels of one value, which flat pictures have
        variance, mean = torch.var_mean(values, -1, correction=min(1, values.shape[-1] - 1), keepdim=True)
        return mean, variance
    mean = _mean(values, rows)
    count = rows.mask.sum(-1, keepdim=True)
    squares = _inside(values - mean, rows, 0).square().sum(-1, keepdim=True)
    return mean, squares / (count - 1).clamp(min=1)


def channel_stats(features: Tensor, *, channel_dim: int = 1, mask: Tensor | None = None) -> ChannelStats:
    r"""Mean, standard deviation, skewness, kurtosis and infinity norm of every channel.

    ``s`` is the unbiased standard deviation; with :math:`m_k = \frac1n\sum_i (x_i-\mu)^k`, skewness is :math:`m_3/s^3`,
    kurtosis :math:`m_4/s^4` and the infinity norm :math:`\max_i |x_i|`. A constant channel has skewness and kurtosis 0.
    Gradient: ordinary.

    >>> import torch
    >>> from efdm import channel_stats
    >>> stats = channel_stats(torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]]))
    >>> [round(s.item(), 3) for s in stats]
    [0.26, 0.207, -0.113, 0.966, 0.5]
    """
    rows = to_rows(features, "features", channel_dim, mask)
    values = _wide(rows)
    mean, variance = moments_of_rows(rows)
    off = values - mean
    smallest = _inside(values, rows, torch.inf).amin(-1, keepdim=True)
    largest = _inside(values, rows, -torch.inf).amax(-1, keepdim=True)
    # both: the mean of equal values may be off by a bit, and the squares of tiny ones vanish; NaN counts as varying
    varies = (smallest != largest) & (variance != 0)
    scale = torch.where(varies, variance, 1).sqrt()  # a root has no gradient at 0
    std = torch.where(varies, scale, 0)
    skewness = torch.where(varies, _mean((off / scale) ** 3, rows), 0)
    kurtosis = torch.where(varies, _mean((off / scale) ** 4, rows), 0)
    norm = values.abs().amax(-1, keepdim=True)
    return ChannelStats(*(s.squeeze(-1).to(features.dtype) for s in (mean, std, skewness, kurtosis, norm)))


def tied_share(features: Tensor, *, channel_dim: int = 1) -> Tensor:
    """The share of values that occur more than once in their (sample, channel): ``(b, c)``, from 0 to 1. No gradient.

    >>> import torch
    >>> from efdm import tied_share
    >>> tied_share(torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]))
    tensor([[0.8000]])
    """
    rows = to_rows(features.detach(), "features", channel_dim)
    start, end = tie_bounds(kernels.sort_rows(rows.values))
    return (end - start > 1).float().mean(-1)


def _match_moments(
    content: Tensor,
    style: Style,
    mean: str,
    std: str,
    eps: float,
    style_grad: str,
    content_stats: str,
    channel_dim: int,
    content_mask: Tensor | None,
    style_mask: Tensor | None,
) -> Tensor:
    """``(x - from) * scale + to``: which mean to take off and add, and whether the spread is matched."""
    check_choice("style_grad", style_grad)
    check_choice("content_stats", content_stats)
    x = to_rows(content, "content", channel_dim, content_mask)
    y = style_rows(style, x, content, channel_dim, style_mask)
    mean_x, var_x = moments_of_rows(x if content_stats == "flow" else x._replace(values=x.values.detach()))
    mean_y, var_y = moments_of_rows(y if style_grad == "flow" else y._replace(values=y.values.detach()))
    taken, given = _means(mean, mean_x, mean_y)
    out = _wide(x) - taken
    if std == "style":
        out = out / (var_x + eps).sqrt() * (var_y + eps).sqrt()
    out = (out + given).to(content.dtype)
    return from_rows(where_selected(out, x.values, x, y), content, channel_dim)


def _means(mean: str, content: Tensor, style: Tensor) -> tuple[Tensor, Tensor]:
    """What is taken off before the spread is matched, and what is added after it."""
    if mean == "scaled":
        return (torch.zeros_like(content),) * 2
    return content, {"content": content, "style": style}[mean]


def mix_partners(
    content: Tensor,
    partners: Partners,
    strength: float | Tensor,
    *,
    mean: str = "style",
    std: str = "style",
    eps: float = 0.0,
    style_grad: str = "stop",
    content_stats: str = "stop",
    channel_dim: int = 1,
) -> Tensor:
    """Match within a batch and blend. Statistics are taken once for all samples, and each value is scaled and shifted once.

    ``mean`` and ``std`` say what is matched, as in `_match_moments`. At strength 0 the content, exactly. A channel that is
    nearly flat, far from zero, loses digits: its mean is not taken off before a large ``scale`` but after it, in ``shift``.
    """
    check_choice("style_grad", style_grad)
    check_choice("content_stats", content_stats)
    check_features(content, "content", channel_dim)
    x = upcast(content)
    weight = partners.weights(strength, content).reshape(-1, *[1] * (x.ndim - 1))
    space = tuple(d for d in range(1, x.ndim) if d != channel_dim % x.ndim)
    found = mean_and_variance(x if "flow" in (style_grad, content_stats) else x.detach(), space)
    mean_x, var_x = (s if content_stats == "flow" else s.detach() for s in found)
    mean_y, var_y = (s.index_select(0, partners.index) for s in (f if style_grad == "flow" else f.detach() for f in found))
    taken, given = _means(mean, mean_x, mean_y)
    scale = (var_y + eps).sqrt() / (var_x + eps).sqrt() if std == "style" else torch.ones_like(var_x)
    shift = given - taken * scale
    # chosen, not computed, where nothing is taken: statistics of infinities are NaN
    grows, shift = (torch.where(weight == 0, 0.0, weight * part) for part in (scale - 1, shift))
    return torch.addcmul(shift, x, 1 + grows).to(content.dtype)


def adain(
    content: Tensor,
    style: Style,
    *,
    eps: float = STYLE_EPS,
    style_grad: str = "stop",
    content_stats: str = "flow",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match mean and standard deviation: :math:`(x-\mu_x)/s_x\cdot s_y+\mu_y`, with :math:`s=\sqrt{\mathrm{var}+\epsilon}`.

    Gradient: ordinary, through the content's statistics (``content_stats="flow"``) or past them (``"stop"``, as MixStyle
    does), and to the style only with ``style_grad="flow"``.

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
    style_grad: str = "stop",
    content_stats: str = "flow",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match the mean alone: :math:`x-\mu_x+\mu_y`. Gradients as in `adain`.

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
    mean: str = "scaled",
    eps: float = STYLE_EPS,
    style_grad: str = "stop",
    content_stats: str = "flow",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match the standard deviation alone. Gradients as in `adain`.

    ``mean="scaled"``: :math:`x/s_x\cdot s_y`, the mean is scaled too (the authors' style transfer).
    ``mean="content"``: :math:`(x-\mu_x)/s_x\cdot s_y+\mu_x`, the mean is kept (the authors' augmentation).

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
