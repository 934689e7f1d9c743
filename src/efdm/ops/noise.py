"""Gaussian noise on whole feature distributions, with the covariance of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm import kernels
from efdm.ops import gradient
from efdm.ops.choices import StyleGrad, check_choice
from efdm.ops.layout import from_rows, to_rows


def distribution_noise(features: Tensor, weights: Tensor, *, style_grad: StyleGrad = "flow", channel_dim: int = 1) -> Tensor:
    r"""Add weighted deviations of the batch's distributions from their mean to the distribution of every sample.

    In every channel, sorted values :math:`s_b` become :math:`s_b + \sum_a w_{ba}\,(s_a - \bar s)`, where :math:`\bar s` is
    the mean of the sorted values over the batch, and return to the positions they came from. With independent weights
    :math:`w_{ba} \sim N(0, 1/(B-1))` this is Gaussian noise with the batch's own covariance over ranks and, if the channels
    share their weights, over channels. Weights of zero return the features exactly.

    Args:
        features: Features ``(b, c, *space)``, or another order of dimensions with ``channel_dim``.
        weights: Weights ``(b, b)`` for all channels, or ``(c, b, b)``. They are not differentiated.
        style_grad: Gradient through the deviations. ``"flow"``: the gradient of the formula; ``"stop"``: the deviations are
            constant, so the gradient is that of the identity.
        channel_dim: Dimension of the channels: -1 for NHWC features and tokens.

    >>> import torch
    >>> from efdm import distribution_noise
    >>> x = torch.tensor([[[3.0, 1.0, 2.0]], [[10.0, 20.0, 30.0]]])
    >>> distribution_noise(x, torch.tensor([[0.0, 0.5], [0.0, 0.0]]))
    tensor([[[ 9.7500,  3.2500,  6.5000]],
    <BLANKLINE>
            [[10.0000, 20.0000, 30.0000]]])
    """
    check_choice("style_grad", style_grad)
    x = to_rows(gradient.detached(features), "features", channel_dim).values
    batch, channels = x.shape[:2]
    if not isinstance(weights, Tensor) or weights.shape not in ((batch, batch), (channels, batch, batch)):
        got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"weights must have shape {(batch, batch)} or {(channels, batch, batch)}, got {got}")
    weights = gradient.detached(weights).to(x.device, torch.promote_types(x.dtype, torch.float32))
    matrix = weights - weights.mean(-1, keepdim=True)  # centring the weights equals centring the values
    if style_grad == "flow" and gradient.needs_grad(features):
        return gradient.within_batch("combine", features, channel_dim, matrix)
    moved = kernels.combine_order(x, matrix)[0]
    return gradient.straight_through(features, from_rows(moved, gradient.detached(features), channel_dim))
