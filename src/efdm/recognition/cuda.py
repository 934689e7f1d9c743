"""CUDA kernels of a training step on pictures, compiled at run time. Without them, callers use plain torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from torch import Tensor

from efdm.kernels.nvrtc import Module, unavailable_reason

_SOURCE = Path(__file__).with_suffix(".cu")
_THREADS = 256
_LARGEST = 2**31  # elements; the kernels count in 32 bits


def has_kernels(x: Tensor) -> bool:
    """Return True if the kernels can run on ``x``."""
    return x.is_cuda and x.numel() < _LARGEST and unavailable_reason() is None


@cache
def _module(device: int) -> Module:
    return Module(_SOURCE.read_text(), {}, device, max_shared=0)


def launch(kernel: str, threads: int, *arguments: Tensor | int | None) -> None:
    """Run ``kernel`` with at least ``threads`` threads. The first argument is a tensor on its device."""
    assert isinstance(arguments[0], Tensor)
    _module(arguments[0].get_device()).launch(kernel, -(-threads // _THREADS), _THREADS, 0, *arguments)
