"""Distances by k-reciprocal encoding, which re-rank a gallery without labels.

Zhong et al., "Re-ranking Person Re-identification with k-reciprocal Encoding", CVPR 2017. Pictures are neighbours if each is
among the k nearest of the other. A picture is encoded by weights of its neighbours, and pictures that share neighbours get a
smaller distance. Every ranking depends on the whole gallery and on all queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.reid.retrieval import CHUNK, Features, cosine_distances, full_precision, unit_vectors


@torch.no_grad()
def k_reciprocal(
    query: Features,
    gallery: Features,
    *,
    k1: int = 20,
    k2: int = 6,
    weight: float = 0.3,
    chunk: int = CHUNK,
) -> Tensor:
    """Return re-ranking distances ``(queries, gallery)`` for `rank_distances`, on the device of the features.

    Neighbours are found among the ``k1`` nearest pictures, and encodings are averaged over the ``k2`` nearest. The result is
    ``weight`` times the cosine distance plus ``1 - weight`` times the Jaccard distance. The defaults are the paper's.
    ``chunk`` distances are in memory at a time, apart from the result.
    """
    for name, value in (("k1", k1), ("k2", k2)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be from 0 to 1, got {weight}")
    vectors = torch.cat(unit_vectors(query.vectors, gallery.vectors))
    count, queries = len(vectors), len(query)
    needed = min(max(k1 + 1, k2), count)  # the picture itself is the nearest

    def distances_from(part: Tensor) -> Tensor:
        """Return the distances from the vectors at ``part`` to all, divided by the largest of each row."""
        distances = cosine_distances(vectors[part], vectors)
        return distances.div_(distances.amax(1, keepdim=True))

    every = torch.arange(count, device=vectors.device)
    rows = max(1, chunk // max(count, (k1 + 1) ** 3))
    with full_precision():
        near = torch.cat([distances_from(part).topk(needed, largest=False)[1] for part in every.split(rows)])
        encoded = _average_over_neighbours(_encode(near[:, : k1 + 1], distances_from, rows), near[:, :k2], rows)
        parts = every[:queries].split(rows)
        return torch.cat(
            [
                (1 - weight) * (1 - shared / (2 - shared)) + weight * distances_from(part)[:, queries:]
                for part, shared in zip(parts, _shared_weights(encoded, count, parts), strict=True)
            ]
        )


class Weights(NamedTuple):
    """The entries of a sparse matrix ``(n, n)``, sorted by row."""

    rows: Tensor
    columns: Tensor
    values: Tensor


def _reciprocal(near: Tensor) -> Tensor:
    """Return which of the nearest pictures ``(n, k)`` have the picture among their own k nearest."""
    return (near[near] == torch.arange(len(near), device=near.device)[:, None, None]).any(2)


def _encode(near: Tensor, distances_from: Callable[[Tensor], Tensor], rows: int) -> Weights:
    """Return the encoding of every picture: weights of its neighbours and of those added to them, with a sum of 1."""
    count, k = near.shape
    half = near[:, : round((k - 1) / 2) + 1]
    mutual, half_mutual = _reciprocal(near), _reciprocal(half)
    blocks = []
    for part in torch.arange(count, device=near.device).split(rows):
        own, is_own = near[part], mutual[part]
        theirs, is_theirs = half[own], half_mutual[own]  # (rows, k, half): neighbours of neighbours
        common = is_theirs & ((theirs[..., None] == own[:, None, None]) & is_own[:, None, None]).any(3)
        # the neighbours of a neighbour are added if more than two thirds of them are in common
        is_added = is_theirs & (is_own & (3 * common.sum(2) > 2 * is_theirs.sum(2)))[..., None]
        member = torch.zeros(len(part), count, dtype=torch.bool, device=near.device)
        for columns, chosen in ((own, is_own), (theirs, is_added)):
            member[chosen.nonzero()[:, 0], columns[chosen]] = True
        weights = distances_from(part).neg_().exp_().mul_(member)
        weights /= weights.sum(1, keepdim=True)
        at, columns = member.nonzero(as_tuple=True)
        blocks.append((part[at], columns, weights[at, columns]))
    return Weights(*map(torch.cat, zip(*blocks, strict=True)))


def _average_over_neighbours(encoded: Weights, near: Tensor, rows: int) -> Weights:
    """Return for every picture the mean of the encodings of its nearest pictures."""
    count, k = near.shape
    lengths = encoded.rows.bincount(minlength=count)
    starts = lengths.cumsum(0) - lengths
    blocks = []
    for part in torch.arange(count, device=near.device).split(rows):
        pictures = near[part].flatten()
        entry, at = _concatenated_ranges(starts[pictures], lengths[pictures])
        places, inverse = (part[entry // k] * count + encoded.columns[at]).unique(return_inverse=True)
        sums = torch.zeros(len(places), dtype=encoded.values.dtype, device=near.device)
        sums.index_put_((inverse,), encoded.values[at] / k, accumulate=True)
        blocks.append((places // count, places % count, sums))
    return Weights(*map(torch.cat, zip(*blocks, strict=True)))


def _shared_weights(encoded: Weights, count: int, parts: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield, for each part of the queries, the overlap of their encodings with the gallery's: summed smaller weights."""
    queries = sum(map(len, parts))
    in_gallery = encoded.rows >= queries
    rows, columns, values = (entries[in_gallery] for entries in encoded)
    order = columns.argsort(stable=True)
    pictures, theirs = (rows - queries)[order], values[order]
    lengths = columns.bincount(minlength=count)
    starts = lengths.cumsum(0) - lengths
    for part in parts:
        row, column, value = (entries[(encoded.rows >= part[0]) & (encoded.rows <= part[-1])] for entries in encoded)
        entry, at = _concatenated_ranges(starts[column], lengths[column])
        out = torch.zeros(len(part), count - queries, dtype=values.dtype, device=values.device)
        places = ((row - part[0])[entry], pictures[at])
        yield out.index_put_(places, torch.minimum(value[entry], theirs[at]), accumulate=True)


def _concatenated_ranges(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for concatenated ranges ``start, start + 1, ...``, the number of the range and the value of each element.

    >>> _concatenated_ranges(torch.tensor([5, 0]), torch.tensor([2, 3]))
    (tensor([0, 0, 1, 1, 1]), tensor([5, 6, 0, 1, 2]))
    """
    span = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    return span, torch.arange(len(span), device=span.device) - (lengths.cumsum(0) - lengths - starts)[span]
