"""Loss terms that are added to the cross-entropy: ``penalty(features, logits, targets, domains)`` returns a scalar.

``features`` ``(b, d)`` are the inputs of the last layer, ``logits`` and ``targets`` are ``(b, k)``, ``domains`` ``(b,)`` are
integer domain labels. A penalty reads nothing back from the device and no shape depends on values, so a CUDA graph can
capture it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from efdm.errors import SettingError


def coral_distance(features: Tensor, domains: Tensor) -> Tensor:
    """Return the mean CORAL distance between the domains of a batch.

    The distance of two domains is the mean squared difference of their feature means plus that of their (unbiased)
    covariance matrices, as in DomainBed. The result is the average over all pairs of domains, and 0 for a single domain.
    """
    # Gram matrices of samples give all pairs of domains at once: ||C_i - C_j||^2 = T_ii + T_jj - 2 T_ij, where T_ij sums the
    # squared inner products of centred samples. float64: the sums cancel, and neither autocast nor TF32 applies to it.
    x = features.flatten(1).double()
    same = (domains[:, None] == domains).double()
    count = same.sum(1)
    present = (1 / count).sum()
    means = same @ x / count[:, None]
    of_means = present * (means.square().sum(1) / count).sum() - (means / count[:, None]).sum(0).square().sum()
    scale = 1 / (count - 1).clamp(min=1)
    products = ((x - means) @ (x - means).T).square() * torch.outer(scale, scale)
    of_covariances = present * (same * products).sum() - products.sum()
    pairs = (present * (present - 1) / 2).clamp(min=1)
    d = x.shape[1]
    return ((of_means / d + of_covariances / d**2) / pairs).float()


@dataclass(frozen=True)
class Coral:
    """CORAL (Sun and Saenko, ECCV Workshops 2016) in DomainBed's form: `coral_distance` times ``gamma``."""

    gamma: float = 1.0  # DomainBed

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < math.inf:
            raise SettingError(f"gamma must be finite and >= 0, got {self.gamma}", "gamma")

    def __call__(self, features: Tensor, logits: Tensor, targets: Tensor, domains: Tensor) -> Tensor:
        return self.gamma * coral_distance(features, domains)
