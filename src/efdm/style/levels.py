"""Exact matching of integer levels by counting, in one or several chunks.

Pictures of 8 or 16 bits have few levels and many equal values. Equal values are ordered by a position inside their level: a
value and its position give one of `BINS` bins. Counting the bins gives the rank of a value without sorting, and counts of
several chunks, pictures or frames add up, so a chunk is mapped exactly without the others in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.kernels.cpu import unavailable_reason
from efdm.kernels.cpu_threads import parallel_rows

BINS = 2**18  # 1024 positions in a level of 8 bits, 4 in a level of 16 bits
BOX = 16  # width of the box whose convolution with itself is the window of the local mean
HALO = BOX - 1  # pixels of the window on each side
# fractions of the generalized golden ratio in units of 2^-32: rows and columns fill [0, 1) evenly (Roberts, 2018)
STEPS = (2447445414, 3242174889)
SEED_STEP = 2654435769  # 2^32 divided by the golden ratio
DITHER = 0.25  # weight of the dither in the order of equal values


def _compiled(tensor: Tensor) -> Any:
    """Return the module compiled by numba for a tensor on the CPU, or None if it cannot be used."""
    if not tensor.is_cpu or unavailable_reason() is not None:
        return None
    from efdm.style import levels_cpu

    return levels_cpu


def _dither_terms(levels: Tensor, seed: int, top: int) -> tuple[Tensor, Tensor]:
    height, width = levels.shape[-2:]
    rows = torch.arange(top, top + height, device=levels.device) * STEPS[0] + seed % 2**31 * SEED_STEP & 0xFFFFFFFF
    return rows, torch.arange(width, device=levels.device) * STEPS[1] & 0xFFFFFFFF


def dither(levels: Tensor, seed: int, top: int) -> Tensor:
    """Return values in [0, 1) in the shape of ``levels`` that differ strongly between neighbours and are spread evenly.

    They depend only on row, column and seed. ``levels`` start at row ``top`` of the picture.
    """
    rows, columns = _dither_terms(levels, seed, top)
    return ((rows[:, None] + columns) & 0xFFFFFFFF).float().div_(2**32).expand(levels.shape)


def local_mean(levels: Tensor) -> Tensor:
    """Return the mean around every level ``(c, h, w)`` with triangular weights over 31 x 31 pixels, edges replicated."""
    # four means over 16 values add 16 bits; they are exact in this type, so the result does not depend on the chunk
    exact = torch.float32 if levels.max() < 256 else torch.float64
    mean = F.pad(levels.to(exact)[None], (HALO,) * 4, mode="replicate")
    for kernel in ((1, BOX), (BOX, 1)) * 2:
        mean = F.avg_pool2d(mean, kernel, 1)
    return mean[0].float()


def _smooth(levels: Tensor, seed: int, top: int) -> Tensor:
    """Order by the local mean, which continues a gradient inside a plateau, and by dither where the mean is constant."""
    off = local_mean(levels).sub_(levels.float())
    off /= off.abs().add_(1)
    return torch.lerp(off.add_(1).mul_(0.5), dither(levels, seed, top), DITHER)


def _constant(levels: Tensor, seed: int, top: int) -> Tensor:
    return torch.full((), 0.5, device=levels.device).expand(levels.shape)


# order of equal values: name -> positions (c, h, w) in [0, 1) inside their level
TIES: Mapping[str, Callable[[Tensor, int, int], Tensor]] = {
    "smooth": _smooth,
    "dither": dither,
    "position": _constant,
}  # fmt: skip


def to_bins(values: Tensor) -> Tensor:
    """Return the bins of values in [0, 1) as int32."""
    return (values * BINS).int().clamp_(0, BINS - 1)


def add_counts(counts: Tensor, rows: Tensor) -> Tensor:
    """Add the histograms of integer ``rows`` ``(c, n)`` to ``counts`` ``(c, bins)`` in place, and return ``counts``."""
    if compiled := _compiled(rows):
        arrays = rows.numpy(), counts.numpy()
        _each_row(lambda row: compiled.count(*(array[row] for array in arrays)), *rows.shape)
    else:
        for total, row in zip(counts, rows, strict=True):
            total += torch.bincount(row, minlength=len(total))
    return counts


def ordered_bins(levels: Tensor, depth: int, ties: str, seed: int, top: int) -> Tensor:
    """Return the bins ``(c, h, w)`` of integers below ``depth``, with equal ones in the order of ``ties``."""
    compiled = _compiled(levels) if ties == "smooth" and depth == 256 else None
    if not compiled:
        return to_bins((levels + TIES[ties](levels, seed, top)).div_(depth))
    (channels, height, width), out = levels.shape, torch.empty_like(levels, memory_format=torch.contiguous_format)
    terms = (term.numpy().astype("u4") for term in _dither_terms(levels, seed, top))
    arrays: tuple[Any, ...] = (levels.contiguous().numpy(), *terms, np.float32(BINS // depth), out.numpy())
    parallel_rows(lambda first, end: compiled.smooth_bins(*arrays, first, end), channels * height, width)
    return out


class Curve(NamedTuple):
    """The map of a channel from bins to levels."""

    ends: Tensor  # rank at which every level ends
    first: Tensor  # next rank of every bin
    packed: Tensor  # twice the lowest level of every bin, plus 1 if the bin is divided between levels


def make_curves(counts: Tensor, reference: Tensor, tolerance: float = 0.0) -> list[Curve]:
    """Return the curve of every channel, from the bins ``counts`` ``(c, BINS)`` to the levels ``reference`` ``(c, levels)``.

    The reference is resampled to the number of counted values: rank ``r`` of ``n`` gets the order statistic
    ``floor((r + 1/2) m / n)`` of the ``m`` values of the reference, as in `efdm.ops.efdm` with ``sizes="nearest"``. Values
    in the same bin are ranked by position. With a tolerance, a bin gets the mean over the ranks of all bins within that many
    standard deviations, rounded to a level. May overwrite the counts.
    """
    make = partial(_tolerant_curve, tolerance=tolerance) if tolerance else _curve
    if not _compiled(counts):
        return [make(*channel) for channel in zip(counts, reference, strict=True)]
    curves: dict[int, Curve] = {}
    _each_row(lambda row: curves.update({row: make(counts[row], reference[row])}), *counts.shape)
    return [curves[row] for row in range(len(counts))]


def map_bins(bins: Tensor, curves: Sequence[Curve]) -> Tensor:
    """Return the matched levels ``(c, n)``, int32, of a chunk. Chunks are mapped in the order in which they were counted.

    May overwrite the bins. The curves advance to the ranks of the next chunk.
    """
    compiled = _compiled(bins)
    if not compiled:
        return torch.stack([_map_row(*channel) for channel in zip(bins, curves, strict=True)])
    _each_row(lambda row: compiled.to_levels(*(array.numpy() for array in (bins[row], *curves[row]))), *bins.shape)
    return bins


def _each_row(work: Callable[[int], None], rows: int, n: int) -> None:
    """Call ``work`` with the number of every row of length ``n``, from several threads."""

    def several(first: int, end: int) -> None:
        for row in range(first, end):
            work(row)

    parallel_rows(several, rows, n)


def _curve(counts: Tensor, reference: Tensor) -> Curve:
    n, m = int(counts.sum()), int(reference.sum())
    # Python integers: products of two numbers of values exceed 64 bits
    ends = [max(0, -((m - 2 * n * c) // (2 * m))) for c in reference.cumsum(0).tolist()]
    levels = torch.tensor(ends, device=counts.device)
    if compiled := _compiled(counts):
        packed = torch.empty(len(counts), dtype=torch.int32)
        compiled.curve(counts.numpy(), levels.numpy(), packed.numpy())  # in place: allocating takes longer than computing
        return Curve(levels, counts, packed)
    last = counts.cumsum(0)
    first = last - counts
    low = torch.searchsorted(levels, first, right=True)
    divided = torch.searchsorted(levels, last) > low
    return Curve(levels, first, (2 * low + divided).int())


def _tolerant_curve(counts: Tensor, reference: Tensor, tolerance: float) -> Curve:
    n = counts.sum().clamp(min=1)  # without valid pixels, the counts are 0
    bins, weights = torch.arange(BINS, device=counts.device), counts.double()
    mean = (weights * bins).sum() / n
    deviation = ((weights * (bins - mean).square()).sum() / (n - 1).clamp(min=1)).sqrt()
    radius = max(int(tolerance * deviation), BINS // len(reference))  # at least a level, inside which ties spread values
    last = counts.cumsum(0)
    ranks = torch.stack([(last - counts)[(bins - radius).clamp(min=0)], last[(bins + radius).clamp(max=BINS - 1)]])
    # sums over the order statistics of the reference are piecewise linear in the share of the ranks
    index, shares = torch.arange(len(reference), device=counts.device), reference.double() / reference.sum()
    ends, sums = shares.cumsum(0), (shares * index).cumsum(0)
    at = torch.searchsorted(ends, ranks / n).clamp(max=len(index) - 1)
    first, end = sums[at] + (ranks / n - ends[at]) * index[at]
    means = (end - first) * n / (ranks[1] - ranks[0]).clamp(min=1)
    return Curve(index, last - counts, 2 * means.round().int())


def _map_row(bins: Tensor, curve: Curve) -> Tensor:
    packed = curve.packed.index_select(0, bins)
    out = packed >> 1
    divided = (packed & 1).nonzero()[:, 0]  # only values in bins that are divided between levels need their rank
    if len(divided):
        rank, order = take_ranks(bins[divided], curve.first)
        out[divided[order]] = torch.searchsorted(curve.ends, rank, right=True, out_int32=True)
    return out


def take_ranks(bins: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ranks of a chunk in the order of bins, then of positions, and the positions in this order.

    ``first`` is the next rank of every bin. It is advanced in place for the next chunk.
    """
    ordered, order = bins.sort(stable=True)
    present, sizes = ordered.unique_consecutive(return_counts=True)
    starts = first[present] - (sizes.cumsum(0) - sizes)
    first[present] += sizes
    return starts.repeat_interleave(sizes) + torch.arange(len(bins), device=bins.device), order
