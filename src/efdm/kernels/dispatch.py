"""The kernel table and the choice of a kernel: the first row that supports the input is used.

Set the environment variable ``EFDM_KERNEL`` to the name of a row to force that kernel. If it does not support the input, the
call raises an error that says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from efdm.kernels import cpu, cuda, nvrtc, reference
from efdm.kernels.cuda_launch import max_block_length
from efdm.kernels.floats import DTYPES

ENV_VARIABLE = "EFDM_KERNEL"
_ALL_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Kernel:
    """A row of the kernel table. ``functions`` provides every function of `reference`."""

    name: str
    device: str  # a device type, or "any"
    dtypes: tuple[torch.dtype, ...]
    max_length: Callable[[torch.device, torch.dtype], float]  # longest supported row
    unavailable_reason: Callable[[], str | None]  # the missing dependency, or None
    functions: Any
    description: str
    strided: tuple[str, ...] = ()  # functions that accept any strides; the others receive contiguous rows


def _max_block_length(device: torch.device, dtype: torch.dtype) -> float:
    index = device.index if device.index is not None else torch.cuda.current_device()
    return max_block_length(index, dtype.itemsize)


_MIXING = ("mix_partners", "mix_order", "mix_backward")
_COMBINING = ("combine_order", "combine_backward")

KERNELS = (
    Kernel(
        "cuda_block", "cuda", DTYPES, _max_block_length, nvrtc.unavailable_reason, cuda.block,
        "one fused launch, one thread block per row", strided=(*_MIXING, *_COMBINING),
    ),
    Kernel(
        "cuda_chunks", "cuda", DTYPES, lambda d, t: cuda.MAX_CHUNKED_LENGTH, nvrtc.unavailable_reason, cuda.chunks,
        "chunks sorted by one thread block each, then merged",
    ),
    Kernel(
        "cuda_radix", "cuda", DTYPES, lambda d, t: cuda.MAX_LENGTH, nvrtc.unavailable_reason, cuda.radix,
        "radix sort, all thread blocks together",
    ),
    Kernel(
        "cpu_network", "cpu", DTYPES, lambda d, t: cpu.MAX_NETWORK_LENGTH[t.itemsize], cpu.unavailable_reason, cpu.network,
        "numba sorting network, several rows per vector", strided=_MIXING,
    ),
    Kernel(
        "cpu_radix", "cpu", DTYPES, lambda d, t: cpu.MAX_ROW_LENGTH, cpu.unavailable_reason, cpu.radix,
        "numba radix sort, rows distributed over threads",
    ),
    Kernel(
        "torch", "any", _ALL_FLOATS, lambda d, t: float("inf"), lambda: None, reference,
        "torch.sort and scatter",
    ),
)  # fmt: skip


def _objection(kernel: Kernel, device: torch.device, dtype: torch.dtype, n: int) -> str | None:
    """Return why the kernel cannot process rows of ``n`` values, or None if it can."""
    if kernel.device not in ("any", device.type):
        return f"is for {kernel.device}, not {device.type}"
    if dtype not in kernel.dtypes:
        return f"does not support {dtype}"
    if missing := kernel.unavailable_reason():
        return missing
    max_length = kernel.max_length(device, dtype)
    return f"supports rows of up to {max_length:,.0f} values" if n > max_length else None


@cache
def _decide(device: torch.device, dtype: torch.dtype, n: int, forced: str | None) -> tuple[Kernel, tuple[str, ...]]:
    """Return the kernel, and the reasons why the rows above it were skipped."""
    names = [k.name for k in KERNELS]
    if forced and forced not in names:
        raise ValueError(f"{ENV_VARIABLE}={forced} is not a kernel; choose one of {', '.join(names)}")
    skipped: list[str] = []
    for kernel in KERNELS:
        if forced and kernel.name != forced:
            continue
        objection = _objection(kernel, device, dtype, n)
        if objection is None:
            return kernel, tuple(skipped)
        skipped.append(f"{kernel.name} {objection}")
    problem = f"{ENV_VARIABLE}={forced} does not support" if forced else "no kernel supports"
    raise ValueError(f"{problem} rows of {n} {dtype} values on {device}: {'; '.join(skipped)}")


def choose_kernel(device: torch.device, dtype: torch.dtype, n: int) -> Kernel:
    """Return the kernel that processes rows of ``n`` values."""
    return _decide(device, dtype, n, os.environ.get(ENV_VARIABLE))[0]


def explain(device: torch.device | str, dtype: torch.dtype, n: int) -> str:
    """Return a sentence with the kernel for rows of ``n`` values and the reasons the rows above it were skipped."""
    forced = os.environ.get(ENV_VARIABLE)
    kernel, skipped = _decide(torch.device(device), dtype, n, forced)
    reasons = [f"forced by {ENV_VARIABLE}" if forced else "first match in the kernel table", *skipped]
    return f"{kernel.name} ({kernel.description}): {'; '.join(reasons)}"
