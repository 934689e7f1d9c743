"""Who mixes with whom. A pairing gives every sample of a batch the index of the sample whose style it receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from efdm.nn.draw import Generator, permutation, uniform

Pairing = Literal["random", "crossdomain", "halves"]  # the rows of `PAIRINGS`
PairingFunction = Callable[[int, Tensor | None, torch.device, Generator], Tensor]


def random_pairs(batch: int, domains: Tensor | None, device: torch.device, generator: Generator) -> Tensor:
    """The batch shuffled; a sample may meet itself. Domain labels are not looked at."""
    return permutation(batch, device, generator)


def crossdomain_pairs(batch: int, domains: Tensor | None, device: torch.device, generator: Generator) -> Tensor:
    """Each sample with one drawn evenly from all samples of other domains.

    A sample that meets no other domain in its batch is paired with itself and so stays as it is: nothing that could be
    mixed in would be from another domain.
    """
    if domains is None:
        raise ValueError(
            "pairing='crossdomain' needs domain labels: call model(images, domains=labels) after mix_after, "
            "layer(features, domains=labels) yourself, or use the block `with domains_of_batch(labels):`; "
            "pairing='random' does without"
        )
    labels = torch.as_tensor(domains, device=device)
    if labels.shape != (batch,):
        raise ValueError(f"domains has shape {tuple(labels.shape)}, the batch {batch} samples; give one label for each")
    chance = uniform(batch, batch, device=device, generator=generator)
    other = labels[:, None] != labels[None, :]
    partner = torch.where(other, chance, -1.0).argmax(1)
    return torch.where(other.any(1), partner, torch.arange(batch, device=device))


def half_pairs(batch: int, domains: Tensor | None, device: torch.device, generator: Generator) -> Tensor:
    """The pairing of the authors' released code, for comparison: it never sees labels.

    It assumes that a sampler put one domain into each half of the batch, reverses the batch and shuffles within the
    halves. In an odd batch the middle sample goes with the first half of the reversed batch (the released code fails).
    """
    reversed_ = torch.arange(batch - 1, -1, -1, device=device)
    first, second = reversed_[: (batch + 1) // 2], reversed_[(batch + 1) // 2 :]
    shuffled = [half[permutation(half.shape[0], device, generator)] for half in (first, second)]
    return torch.cat(shuffled)


def paired(values: Tensor, partner: Tensor) -> Tensor:
    """``values[partner]``, in the memory format of the values."""
    if values.ndim > 2 and values.stride(1) == 1:  # channels last; a selection alone would put them first
        return values.movedim(1, -1).index_select(0, partner).movedim(-1, 1)
    return values.index_select(0, partner)


PAIRINGS: Mapping[Pairing, PairingFunction] = MappingProxyType({
    "random": random_pairs,
    "crossdomain": crossdomain_pairs,
    "halves": half_pairs,
})  # fmt: skip
