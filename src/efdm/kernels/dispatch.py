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

ENV_VARIABLE = "EFDM_KERNEL"
_EVERY_FLOAT = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Kernel:
    """One row of the table. ``functions`` has everything that `reference` defines."""

    name: str
    device: str  # a device type, or "any"
    dtypes: tuple[torch.dtype, ...]
    max_length: Callable[[torch.device, torch.dtype], float]  # the longest row it takes
    unavailable_reason: Callable[[], str | None]  # what it needs and is missing
    functions: Any
    description: str
    strided: tuple[str, ...] = ()  # functions that take any strides; the others are given contiguous rows


def _max_block_length(device: torch.device, dtype: torch.dtype) -> float:
    index = device.index if device.index is not None else torch.cuda.current_device()
    return cuda.max_block_length(index, dtype.itemsize)


KERNELS = (
    Kernel(
        "cuda_block", "cuda", DTYPES, _max_block_length, cuda.unavailable_reason, cuda.block,
        "one fused launch, a block for each row", strided=("mix_partners",),
    ),
    Kernel(
        "cuda_chunks", "cuda", DTYPES, lambda d, t: cuda.MAX_CHUNKED_LENGTH, cuda.unavailable_reason, cuda.chunks,
        "chunks sorted by a block each, merged by rank",
    ),
    Kernel(
        "cpu_network", "cpu", DTYPES, lambda d, t: cpu.MAX_NETWORK_LENGTH[t.itemsize], cpu.unavailable_reason, cpu.network,
        "numba sorting network, several rows in a vector", strided=("mix_partners",),
    ),
    Kernel(
        "cpu_radix", "cpu", DTYPES, lambda d, t: cpu.MAX_ROW_LENGTH, cpu.unavailable_reason, cpu.radix,
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
    if missing := kernel.unavailable_reason():
        return missing
    longest = kernel.max_length(device, dtype)
    return f"takes rows up to {longest:,.0f}" if n > longest else None


@cache
def _decide(device: torch.device, dtype: torch.dtype, n: int, forced: str | None) -> tuple[Kernel, tuple[str, ...]]:
    names = [k.name for k in KERNELS]
    if forced and forced not in names:
        raise ValueError(f"{ENV_VARIABLE}={forced} is not a row of the kernel table; choose one of {', '.join(names)}")
    passed_over: list[str] = []
    for kernel in KERNELS:
        if forced and kernel.name != forced:
            continue
        objection = _objection(kernel, device, dtype, n)
        if objection is None:
            return kernel, tuple(passed_over)
        passed_over.append(f"{kernel.name} {objection}")
    wanted = f"{ENV_VARIABLE}={forced} cannot serve" if forced else "no kernel serves"
    raise ValueError(f"{wanted} rows of {n} x {dtype} on {device}: {'; '.join(passed_over)}")


def choose_kernel(device: torch.device, dtype: torch.dtype, n: int) -> Kernel:
    """The row of the table for these rows of n values."""
    return _decide(device, dtype, n, os.environ.get(ENV_VARIABLE))[0]


def explain(device: torch.device | str, dtype: torch.dtype, n: int) -> str:
    """A sentence: which kernel would run, and why not the ones above it."""
    forced = os.environ.get(ENV_VARIABLE)
    kernel, passed_over = _decide(torch.device(device), dtype, n, forced)
    reasons = [f"forced by {ENV_VARIABLE}" if forced else "first row of the table that fits", *passed_over]
    return f"{kernel.name} ({kernel.description}): {'; '.join(reasons)}"
