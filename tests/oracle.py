"""Slow, obvious implementations that define the expected results."""

import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor


def _nan_last(value: float) -> tuple[bool, float]:
    """Return a sort key that puts NaN last."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def efdm_row(x: Sequence[float], y: Sequence[float], key: Sequence[float] | None = None) -> list[float]:
    """Assign the i-th smallest y to the i-th smallest x, with ties ordered by key and then by position."""
    order = sorted(range(len(x)), key=lambda i: (_nan_last(x[i]), key[i] if key else 0.0, i))
    out = [0.0] * len(x)
    for position, value in zip(order, sorted(y, key=_nan_last), strict=True):
        out[position] = value
    return out


def tolerant_row(x: Sequence[float], y: Sequence[float], tolerance: float) -> list[float]:
    """Return for every x the mean of the sorted y over all ranks of x within tolerance standard deviations."""
    radius = tolerance * statistics.stdev(x)
    pairs = list(zip(sorted(x), sorted(y), strict=True))
    return [statistics.fmean(v for u, v in pairs if abs(u - each) <= radius) for each in x]


def interpolated(y: Sequence[float], n: int) -> list[float]:
    """Interpolate the order statistics of y at n mid-ranks."""
    ordered, m = sorted(y), len(y)
    out = []
    for i in range(n):
        rank = min(max((i + 0.5) * m / n - 0.5, 0.0), m - 1.0)
        low = math.floor(rank)
        high = min(low + 1, m - 1)
        out.append(ordered[low] + (rank - low) * (ordered[high] - ordered[low]))
    return out


def nearest(y: Sequence[float], n: int) -> list[float]:
    """Return the nearest order statistics of y at n mid-ranks."""
    ordered, m = sorted(y), len(y)
    return [ordered[min(math.floor((i + 0.5) * m / n), m - 1)] for i in range(n)]


def plus_sums(image: Tensor) -> Tensor:
    """Sum over each pixel of ``(h, w)`` and its four neighbors, with replicate padding."""
    h, w = image.shape
    out = torch.zeros_like(image)
    for i in range(h):
        for j in range(w):
            for a, b in ((i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
                out[i, j] += image[min(max(a, 0), h - 1), min(max(b, 0), w - 1)]
    return out


def adain(x: Tensor, y: Tensor, eps: float) -> Tensor:
    """AdaIN of ``(b, c, h, w)`` in a loop over channels."""
    out = torch.empty_like(x)
    for b in range(x.shape[0]):
        for c in range(x.shape[1]):
            u, v = x[b, c], y[b, c]
            out[b, c] = (u - u.mean()) / (u.var() + eps).sqrt() * (v.var() + eps).sqrt() + v.mean()
    return out


def mixstyle(x: Tensor, y: Tensor, lam: Tensor, eps: float) -> Tensor:
    """MixStyle as published: normalize, then scale and shift with mixed statistics, which are detached."""
    dims = (2, 3)
    lam = lam.view(-1, 1, 1, 1)
    mean_x, mean_y = (t.detach().mean(dims, keepdim=True) for t in (x, y))
    std_x, std_y = ((t.detach().var(dims, keepdim=True) + eps).sqrt() for t in (x, y))
    normal = (x - mean_x) / std_x
    return normal * (lam * std_x + (1 - lam) * std_y) + lam * mean_x + (1 - lam) * mean_y


def efdmix(x: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    """EFDMix of ``(b, c, *space)`` as published: sort, look up the partner's values by rank, and interpolate.

    The gradient is that of the sort and of the selection of partners. Ties are ordered by position.
    """
    rows = x.flatten(2)
    values, order = rows.sort(dim=-1, stable=True)
    matched = values[partner].gather(-1, order.argsort(-1))
    return (rows + (matched - rows.detach()) * (1 - lam.view(-1, 1, 1))).view_as(x)
