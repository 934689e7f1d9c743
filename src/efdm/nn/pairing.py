"""Pairings: for every sample of a batch, the index of the sample whose style it receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from efdm.nn.draw import Generator, permutation, uniform

Pairing = Literal["random", "crossdomain", "halves"]  # the rows of `PAIRINGS`
PairingFunction = Callable[[int, Tensor | None, torch.device, Generator], Tensor]


def random_pairs(batch: int, domains: Tensor | None, device: torch.device, generator: Generator) -> Tensor:
    """Return a random permutation of the batch. Domain labels are ignored, and a sample may be its own partner."""
    return permutation(batch, device, generator)


def crossdomain_pairs(batch: int, domains: Tensor | None, device: torch.device, generator: Generator) -> Tensor:
    """Pair each sample with one drawn uniformly from all samples of other domains.

    If the batch contains no other domain, a sample is its own partner and therefore stays unchanged.
    """
    if domains is None:
        raise ValueError(
            "pairing='crossdomain' requires domain labels; call model(images, domains=labels) after mix_after, "
            "layer(features, domains=labels) directly, or the model inside `with domains_of_batch(labels):`; "
            "pairing='random' needs no labels"
        )
    labels = torch.as_tensor(domains, device=device)
    if labels.shape != (batch,):
        raise ValueError(f"domains must have shape ({batch},), one label per sample, got {tuple(labels.shape)}")
    chance = uniform(batch, batch, device=device, generator=generator)
    other = labels[:, None] != labels[None, :]
    partner = torch.where(other, chance, -1.0).argmax(1)
    return torch.where(other.any(1), partner, torch.arange(batch, device=device))


def half_pairs(batch: int, domains: Tensor | None, device: torch.device, generator: Generator) -> Tensor:
    """Pair the halves of the batch as the authors' released code does, for comparison. Domain labels are ignored.

    The sampler must put one domain into each half. The batch is reversed and each half shuffled. In an odd batch the middle
    sample belongs to the first half of the reversed batch; the released code fails there.
    """
    reversed_ = torch.arange(batch - 1, -1, -1, device=device)
    first, second = reversed_[: (batch + 1) // 2], reversed_[(batch + 1) // 2 :]
    shuffled = [half[permutation(half.shape[0], device, generator)] for half in (first, second)]
    return torch.cat(shuffled)


def paired(values: Tensor, partner: Tensor) -> Tensor:
    """Return ``values[partner]`` in the memory format of ``values``."""
    if values.ndim > 2 and values.stride(1) == 1:  # channels last, which index_select alone would not preserve
        return values.movedim(1, -1).index_select(0, partner).movedim(-1, 1)
    return values.index_select(0, partner)


PAIRINGS: Mapping[Pairing, PairingFunction] = {
    "random": random_pairs,
    "crossdomain": crossdomain_pairs,
    "halves": half_pairs,
}  # fmt: skip
