"""Losses on the features of a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def batch_hard_triplet(features: Tensor, people: Tensor, margin: float = 0.3) -> Tensor:
    """Return the mean over the batch of ``max(0, margin + farthest - nearest)``.

    ``farthest`` is the largest Euclidean distance of a sample to one of the same person, ``nearest`` the smallest to one of
    another person (Hermans et al., "In Defense of the Triplet Loss for Person Re-Identification", 2017). Features are
    ``(b, d)``, people ``(b,)``. Samples without another person in the batch have a loss of 0.
    """
    # without matrix products, which lose small distances between large features, most of all in TF32
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    same = people[:, None] == people
    farthest = distances.masked_fill(~same, 0.0).amax(1)
    nearest = distances.masked_fill(same, torch.inf).amin(1)
    return F.relu(margin + farthest - nearest).mean()
