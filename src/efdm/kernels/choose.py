"""Which implementation sorts a row: one table, read from the top, first row that fits wins.

``EFDM_KERNEL=<name>`` forces a row; if that row cannot serve the input, the call fails and says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from efdm.kernels import cpu, cuda, reference
from efdm.kernels.floats import DTYPES

VARIABLE = "EFDM_KERNEL"
_EVERY_FLOAT = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Kernel:
    """One row of the table. ``functions`` has everything that `reference` defines."""

    name: str
    device: str  # a device type, or "any"
    dtypes: tuple[torch.dtype, ...]
    longest: Callable[[torch.device, torch.dtype], float]  # the longest row it takes
    why_not: Callable[[], str | None]  # what it needs and is missing
    functions: Any
    about: str
    strided: tuple[str, ...] = ()  # functions that take any strides; the others are given contiguous rows


def _longest_block(device: torch.device, dtype: torch.dtype) -> float:
    index = device.index if device.index is not None else torch.cuda.current_device()
    return cuda.longest_block(index, dtype.itemsize)


TABLE = (
    Kernel(
        "cuda_block", "cuda", DTYPES, _longest_block, cuda.why_not, cuda.block,
        "one fused launch, a block for each row", strided=("mix_partners",),
    ),
    Kernel(
        "cuda_chunks", "cuda", DTYPES, lambda d, t: cuda.LONGEST_CHUNKED, cuda.why_not, cuda.chunks,
        "chunks sorted by a block each, merged by rank",
    ),
    Kernel(
        "cpu_network", "cpu", DTYPES, lambda d, t: cpu.LONGEST_NETWORK[t.itemsize], cpu.why_not, cpu.network,
        "numba sorting network, several rows in a vector", strided=("mix_partners",),
    ),
    Kernel(
        "cpu_radix", "cpu", DTYPES, lambda d, t: cpu.LONGEST_ROW, cpu.why_not, cpu.radix,
        "numba radix sort, rows shared among threads",
    ),
    Kernel(
        "torch", "any", _EVERY_FLOAT, lambda d, t: float("inf"), lambda: None, reference,
        "torch.sort and scatter",
    ),
)  # fmt: skip


def _objection(kernel: Kernel, device: torch.device, dtype: torch.dtype, n: int) -> str | None:
    """Why this row cannot serve these rows of n values, or nothing."""
    if kernel.device not in ("any", device.type):
        return f"is for {kernel.device}, not {device.type}"
    if dtype not in kernel.dtypes:
        return f"does not take {dtype}"
    if missing := kernel.why_not():
        return missing
    longest = kernel.longest(device, dtype)
    return f"takes rows up to {longest:,.0f}" if n > longest else None


@cache
def _decide(device: torch.device, dtype: torch.dtype, n: int, forced: str | None) -> tuple[Kernel, tuple[str, ...]]:
    names = [k.name for k in TABLE]
    if forced and forced not in names:
        raise ValueError(f"{VARIABLE}={forced} is not a row of the kernel table; choose one of {', '.join(names)}")
    passed_over: list[str] = []
    for kernel in TABLE:
        if forced and kernel.name != forced:
            continue
        objection = _objection(kernel, device, dtype, n)
        if objection is None:
            return kernel, tuple(passed_over)
        passed_over.append(f"{kernel.name} {objection}")
    wanted = f"{VARIABLE}={forced} cannot serve" if forced else "no kernel serves"
    raise ValueError(f"{wanted} rows of {n} x {dtype} on {device}: {'; '.join(passed_over)}")


def choose_kernel(device: torch.device, dtype: torch.dtype, n: int) -> Kernel:
    """The row of the table for these rows of n values."""
    return _decide(device, dtype, n, os.environ.get(VARIABLE))[0]


def explain(device: torch.device | str, dtype: torch.dtype, n: int) -> str:
    """A sentence: which kernel would run, and why not the ones above it."""
    forced = os.environ.get(VARIABLE)
    kernel, passed_over = _decide(torch.device(device), dtype, n, forced)
    reasons = [f"forced by {VARIABLE}" if forced else "first row of the table that fits", *passed_over]
    return f"{kernel.name} ({kernel.about}): {'; '.join(reasons)}"
