"""Mean average precision and CMC of a ranked gallery.

The rule of Market-1501 applies: gallery pictures of the query's person from the query's camera are excluded, and queries
without any other match are not counted. Equal distances rank in the order of the gallery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels

CHUNK = 1 << 24  # distances in memory at a time


@dataclass(frozen=True, eq=False)
class Features:
    """Feature vectors ``(n, d)`` of pictures, with their ``people`` and ``cameras``, integers ``(n,)``."""

    vectors: Tensor
    people: Tensor
    cameras: Tensor

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            _check_tensor(name, values)
        n = len(self.vectors)
        if self.vectors.ndim != 2 or not self.vectors.is_floating_point():
            raise ValueError(f"vectors must be floats (n, d), got {self.vectors.dtype} {tuple(self.vectors.shape)}")
        for name in ("people", "cameras"):
            values = getattr(self, name)
            if tuple(values.shape) != (n,) or values.is_floating_point():
                raise ValueError(f"{name} must be integers ({n},), got {values.dtype} {tuple(values.shape)}")

    def __len__(self) -> int:
        return len(self.vectors)

    def to(self, device: torch.device | str) -> Features:
        """Return the features with all tensors on a device."""
        return Features(self.vectors.to(device), self.people.to(device), self.cameras.to(device))

    def select(self, indices: Tensor) -> Features:
        """Return the features at ``indices``, in that order."""
        at = indices.to(self.vectors.device)
        return Features(self.vectors[at], self.people[at], self.cameras[at])


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}; convert it with torch.as_tensor")


class Ranking(NamedTuple):
    """``mean_ap`` and ``cmc`` ``(top,)``, float64 on the CPU, from 0 to 1; ``cmc[k - 1]`` is the rank-k accuracy."""

    mean_ap: float
    cmc: Tensor


def rank(query: Features, gallery: Features, *, chunk: int = CHUNK, top: int = 50) -> Ranking:
    """Return mAP and CMC of the gallery, ranked by its cosine distance to each query on the device of the features.

    Distances are float32, or float64 for vectors of that dtype; ``chunk`` of them are in memory at a time. The CMC has
    ``top`` ranks.
    """
    vectors, others = unit_vectors(query.vectors, gallery.vectors)
    with full_precision():
        blocks = (cosine_distances(part, others) for part in vectors.split(_rows(chunk, gallery)))
        return _score(blocks, query, gallery, top)


def rank_distances(distances: Tensor, query: Features, gallery: Features, *, top: int = 50) -> Ranking:
    """Return mAP and CMC of the gallery, ranked by ``distances`` ``(queries, gallery)``, such as those of `k_reciprocal`."""
    _check_tensor("distances", distances)
    if tuple(distances.shape) != (len(query), len(gallery)):
        raise ValueError(f"distances have shape {tuple(distances.shape)}, expected {(len(query), len(gallery))}")
    return _score((part.clone() for part in distances.split(_rows(CHUNK, gallery))), query, gallery, top)


def pairwise(query: Tensor, gallery: Tensor) -> Tensor:
    """Return the cosine distances ``(q, g)`` between vectors ``(q, d)`` and ``(g, d)``."""
    with full_precision():
        return cosine_distances(*unit_vectors(query, gallery))


def cosine_distances(query: Tensor, gallery: Tensor) -> Tensor:
    """Return ``1 - cos`` between vectors of length 1."""
    return torch.mm(query, gallery.T).neg_().add_(1)


@contextmanager
def full_precision() -> Iterator[None]:
    """Disable TF32 inside a ``with`` block, because its 11-bit products would reorder a gallery."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def unit_vectors(query: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors ``(q, d)`` and ``(g, d)``, divided by their lengths."""
    if query.shape[1] != gallery.shape[1]:
        shapes = f"{tuple(query.shape)} and {tuple(gallery.shape)}"
        raise ValueError(f"query and gallery vectors have shapes {shapes}; expected the same dimension")
    if not (query.isfinite().all() and gallery.isfinite().all()):
        raise ValueError("the vectors contain NaN or infinite values; check the network that computed them")
    dtype = torch.promote_types(torch.promote_types(query.dtype, gallery.dtype), torch.float32)
    return F.normalize(query.to(dtype)), F.normalize(gallery.to(dtype))


def _rows(chunk: int, gallery: Features) -> int:
    """Return the number of rows of a chunk of distances."""
    return max(1, chunk // max(1, len(gallery)))


def _score(blocks: Iterable[Tensor], query: Features, gallery: Features, top: int) -> Ranking:
    """Return the scores of a distance matrix that is passed in blocks of rows. The blocks are overwritten."""
    if top < 1:
        raise ValueError(f"top must be >= 1, got {top}")
    matches, start = [torch.empty(2, 0, dtype=torch.int64)], 0
    for block in blocks:
        end = start + len(block)
        rows, columns = (query.people[start:end, None] == gallery.people).nonzero(as_tuple=True)
        left_out = query.cameras[start:end][rows] == gallery.cameras[columns]
        block[rows[left_out], columns[left_out]] = torch.inf  # after all others
        rows, columns = rows[~left_out], columns[~left_out]
        ranks = kernels.sort_rank(block)[1][rows, columns] + 1  # ties in the order of the gallery
        matches.append(torch.stack([rows + start, ranks]).cpu())
        start = end
    rows, ranks = torch.cat(matches, 1)
    counts = rows.bincount(minlength=len(query))
    answered = int((counts > 0).sum())
    if not answered:
        raise ValueError(
            f"none of {len(query)} queries has a match among {len(gallery)} gallery pictures; "
            "expected pictures of the same people from other cameras"
        )
    base = len(gallery) + 1
    ranks = (rows * base + ranks).sort().values % base  # ascending within each query
    starts = counts.cumsum(0) - counts
    precision = (torch.arange(1, len(rows) + 1) - starts[rows]).double() / ranks  # at the i-th match: i / rank
    first = ranks[starts[counts > 0]] - 1
    return Ranking(
        float((precision / counts[rows]).sum() / answered),
        first[first < top].bincount(minlength=top).cumsum(0).double() / answered,
    )
