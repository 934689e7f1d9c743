"""Test-time projection: match every sample to the nearest of several reference distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm import kernels
from efdm.ops import gradient
from efdm.ops.layout import to_rows
from efdm.ops.mix import check_weight, mix_features
from efdm.ops.styles import PreparedStyle, partner_mask


def project(
    features: Tensor, references: PreparedStyle, strength: float = 1.0, *, method: str = "efdm", channel_dim: int = 1
) -> Tensor:
    """Match every sample to the nearest of ``k`` reference distributions and blend the result with the sample.

    The nearest reference has the smallest squared Wasserstein-2 distance, divided by the variance of the channel in all
    references and averaged over channels.

    Args:
        features: Features ``(b, c, *space)``, or another order of dimensions with ``channel_dim``.
        references: ``k`` samples of `prepare`, or ``PreparedStyle(values)`` with ascending rows ``(k, c, m)``, such as the
            mean sorted features of ``k`` training domains.
        strength: 0 returns the features and 1 the match.
        method: A row of `MATCHERS`.
        channel_dim: Dimension of the channels: -1 for NHWC features and tokens.

    >>> import torch
    >>> from efdm import prepare
    >>> from efdm.ops import project
    >>> references = prepare(torch.tensor([[[2.0, 4.0, 6.0]], [[10.0, 20.0, 30.0]]]))
    >>> project(torch.tensor([[[3.0, 1.0, 2.0]]]), references, strength=0.5)
    tensor([[[4.5000, 1.5000, 3.0000]]])
    """
    x = to_rows(gradient.detached(features), "features", channel_dim).values
    if not isinstance(references, PreparedStyle):
        raise TypeError(f"references must be a PreparedStyle, got {type(references).__name__}; call prepare(references)")
    if references.values.shape[1] != x.shape[1]:
        raise ValueError(f"references have {references.values.shape[1]} channels, features have {x.shape[1]}")
    check_weight("strength", strength, features, "features", "match")
    references = references.to(x)
    targets = references.resampled(x.shape[-1], "interpolate").float()
    values = kernels.sort_rows(x).float()
    variance = targets.transpose(0, 1).flatten(1).var(-1, correction=0).clamp(min=1e-12)
    distances = [((values - target).square().mean(-1) / variance).mean(-1) for target in targets]
    index = torch.stack(distances).argmin(0)
    nearest = PreparedStyle(references.values[index], partner_mask(references.rows(), index))
    return mix_features(features, nearest, 1 - strength, method, channel_dim=channel_dim)
