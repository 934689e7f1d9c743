"""Rows on the CPU: a radix sort in numba, rows shared among threads.

Floats become unsigned keys with the same order and are sorted digit by digit, lowest first: three digits of 11 bits for
32-bit floats, two of 8 for 16-bit floats. The content carries its position in the low half of a 64-bit word.

Threads are our own and the compiled code releases the GIL: numba's parallel layers may not be entered from two Python
threads at once (workqueue) or after a fork (OpenMP), and both happen to people who serve or load data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from efdm.kernels.floats import INFINITY

LONGEST_ROW = 2**31 - 1  # a position shares a 64-bit word with a 32-bit key
SMALLEST_SHARE = 1 << 15  # elements a thread should get: below this, handing work over costs more than doing it

_WORDS = {2: torch.int16, 4: torch.int32}


def why_not() -> str | None:
    """Nothing if this row can run, else what is missing."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return "numba is not installed (pip install numba)"
    return None


def _kernel(name: str) -> Callable[..., None]:
    # imported here: `import efdm` stays fast, and works without numba
    from efdm.kernels import cpu_radix

    return getattr(cpu_radix, name)


def _words(t: Tensor) -> Any:
    """The tensor's bits as a two-dimensional unsigned numpy array that shares its memory."""
    signed = t.view(_WORDS[t.element_size()]).numpy()
    return signed.view(f"u{t.element_size()}").reshape(-1, t.shape[-1])


_pool: tuple[int, ThreadPoolExecutor] | None = None


def _forget_pool() -> None:
    global _pool
    _pool = None  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _share_rows(work: Callable[[int, int], None], rows: int, n: int) -> None:
    """Call ``work(first, last)`` on shares of the rows, one share in this thread."""
    global _pool
    shares = max(1, min(torch.get_num_threads(), rows, rows * n // SMALLEST_SHARE))
    if shares == 1:
        return work(0, rows)
    if _pool is None or _pool[0] < shares:
        _pool = (shares, ThreadPoolExecutor(shares, thread_name_prefix="efdm"))
    edges = [rows * i // shares for i in range(shares + 1)]
    others = [_pool[1].submit(work, a, b) for a, b in pairwise(edges[1:])]
    work(edges[0], edges[1])
    for other in others:
        other.result()
    return None


def _run(name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
    first = inputs[0]
    if first.numel() == 0:
        return
    n = first.shape[-1]
    rows = first.numel() // n
    kernel = _kernel(name)
    arrays = [_words(t) for t in inputs] + [_words(t) for t in outputs]
    infinity = INFINITY[first.dtype]
    _share_rows(lambda a, b: kernel(*arrays, infinity, a, b), rows, n)


def sort_match(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _run("sort_match", (x, y), (out,))
    return out


def match_sorted(x: Tensor, values: Tensor) -> Tensor:
    out = torch.empty_like(values)
    _run("match_sorted", (x, values), (out,))
    return out


def sort_rows(y: Tensor) -> Tensor:
    out = torch.empty_like(y)
    _run("sort_rows", (y,), (out,))
    return out


def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
    values, rank = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int32, device=x.device)
    _run("sort_rank", (x,), (values, rank))
    return values, rank


def take(values: Tensor, rank: Tensor) -> Tensor:
    rows = values.numel() // values.shape[-1]
    return _take_from(values, rank, torch.arange(rows, dtype=torch.int32, device=values.device))


def _take_from(values: Tensor, rank: Tensor, sources: Tensor) -> Tensor:
    out = torch.empty_like(values)
    _run("take", (values, rank, sources.view(-1, 1)), (out,))
    return out


def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    if partner.numel() and not 0 <= partner.min() <= partner.max() < x.shape[0]:
        raise IndexError(f"partners {partner.tolist()} are not all samples of a batch of {x.shape[0]}")
    values, rank = sort_rank(x)
    channels = torch.arange(x.shape[1], device=x.device)
    out = _take_from(values, rank, (partner[:, None] * x.shape[1] + channels).to(torch.int32).contiguous())
    for mixed, content, w in zip(out, x, weight.tolist(), strict=True):  # in place: memory is what this costs
        if w == 0:
            mixed.copy_(content)
        elif w != 1:
            between = torch.lerp(content, mixed, w)
            if between.isnan().any():  # equal infinities stay: their difference is NaN
                between = torch.where(content == mixed, content, between)
            mixed.copy_(between)
    return out
