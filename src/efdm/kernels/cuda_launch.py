"""Launches of sort_match.cu, which is compiled for each row length, dtype and device."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from efdm.kernels.floats import INFINITY_BITS
from efdm.kernels.nvrtc import Module

# By maximum row length: threads per block, elements per thread, and desired blocks per multiprocessor for kernels that sort
# both sides or one. Kernels are compiled for each number of elements, so there are few. With up to 16, 64 registers suffice
# and 1024 threads share a multiprocessor. Kernels that sort one side gain from more blocks, down to about 40 registers.
# Tuned on an H200, where 8 and 32 elements were slower except for rows of about 1000 values.
_BLOCKS = {
    512: (32, (2, 4, 8, 12, 16), 32, 32),
    832: (64, (13,), 16, 24),
    2048: (128, (8, 10, 13, 16), 8, 12),
    4096: (256, (10, 13, 16), 4, 5),
    8192: (512, (10, 13, 16), 2, 3),
    16_384: (1024, (10, 13, 16), 1, 1),
}
SOURCE = Path(__file__).with_name("sort_match.cu")
THREADS = 256  # threads per block of the kernels that do not sort
MERGE_ITEMS = 8  # elements per thread of the merge kernels and of tolerant matches in tiles, as in sort_match.cu
_TILE = 8192  # elements of a long row that a block handles
_MIX_THREADS = 512  # threads per block of mix_ordered and its gradient, as in sort_match.cu
_MIX_SHARED = 112 * 1024  # their shared memory: two blocks per multiprocessor of an H200
_SECTOR = 32  # bytes per memory transaction


def _row_of(n: int) -> tuple[int, tuple[int, ...], int, int]:
    return next(row for max_length, row in _BLOCKS.items() if n <= max_length)


def _block(n: int) -> tuple[int, int]:
    """Return the threads and the elements per thread for rows of ``n`` values."""
    threads, items, *_ = _row_of(n)
    return threads, next(count for count in items if n <= threads * count)


def _shared_bytes(threads: int, items: int, width: int) -> int:
    """Return the shared memory of a sort: counts or exchanged words, plus a copy of 32-bit keys."""
    counts, words = threads // 32 * 256 * 4 + 32 * 4, threads * items * 4
    return -(-max(counts, words) // 16) * 16 + (words if width == 4 else 0)


def _tolerant_bytes(threads: int, items: int) -> int:
    """Return the shared memory of match_tolerant: the sorted content or the memory of the sort, and padded float64 sums."""
    return _shared_bytes(threads, items, 2) + (threads * items * 17 // 16 + threads // 32 * 4) * 8


@cache
def _max_shared(device: int) -> int:
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined,no-any-return]


def _mix_shared(device: int) -> int:
    return min(_MIX_SHARED, _max_shared(device))


@cache
def max_block_length(device: int, width: int) -> int:
    """Return the longest row that fits the shared memory of a block. ``width`` is the element size, 2 or 4 bytes."""
    return max(n for n in _BLOCKS if _shared_bytes(*_block(n), width) <= _max_shared(device))


@cache
def _module(threads: int, items: int, width: int, device: int) -> Module:
    *_, both_sides, one_side = _row_of(threads * items)
    settings = {"THREADS": threads, "ITEMS": items, "HALF": int(width == 2)}
    settings |= {"BLOCKS_BOTH_SIDES": both_sides, "BLOCKS_ONE_SIDE": one_side}
    shared = (_shared_bytes(threads, items, width), _mix_shared(device), _tolerant_bytes(threads, items))
    return Module(SOURCE.read_text(), settings, device, max(s for s in shared if s <= _max_shared(device)))


class Launcher:
    """Launches kernels compiled for one row length, dtype and device."""

    def __init__(self, n: int, block_length: int, dtype: torch.dtype, device: int) -> None:
        width = dtype.itemsize
        self.n, self.infinity = n, INFINITY_BITS[dtype]
        self.threads, items = _block(block_length)
        self.module = _module(self.threads, items, width, device)
        self.shared, self.tolerant_shared = _shared_bytes(self.threads, items, width), _tolerant_bytes(self.threads, items)
        self.has_tolerant = self.tolerant_shared <= _max_shared(device)  # whether match_tolerant can be launched
        self.capacity = self.threads * items
        self.tiles = -(-n // self.capacity)

    def per_tile(self, kernel: str, x: Tensor, *others: Tensor | int | None, shared: int = 0) -> None:
        """Launch one block per tile of a row. A row that fits one block is a single tile."""
        if rows := x.numel() // self.n:
            size, numbers = shared or self.shared, (self.n, self.infinity)
            self.module.launch(kernel, rows * self.tiles, self.threads, size, x, *others, *numbers)

    def per_group(self, kernel: str, features: Tensor, *others: Tensor) -> None:
        """Launch one block per sample and group of channels, for contiguous or channels-last features ``(b, c, n)``."""
        (batch, channels, n), width = features.shape, features.dtype.itemsize
        words = -(-n * width // 4) | 1  # per line; odd, so that equal indices of adjacent lines are in different banks
        group = _SECTOR // width  # channels that are read or written in one transaction
        while group > 1 and group * words * 4 > _mix_shared(features.device.index):
            group //= 2
        numbers = (batch, channels, n, group, words * 4 // width, int(not features.is_contiguous()), self.infinity)
        if blocks := batch * -(-channels // group):
            self.module.launch(kernel, blocks, _MIX_THREADS, group * words * 4, features, *others, *numbers)

    def per_items(self, kernel: str, items: int, x: Tensor, *others: Tensor | int | None) -> None:
        """Launch one thread per ``items`` elements."""
        if rows := x.numel() // self.n:
            self.module.launch(kernel, rows * -(-self.n // (THREADS * items)), THREADS, 0, x, *others)


_launcher = cache(Launcher)


def block_launcher(x: Tensor) -> Launcher:
    """Return the launcher for rows that fit one thread block."""
    n = x.shape[-1]
    return _launcher(n, n, x.dtype, x.device.index)


def tile_launcher(x: Tensor) -> Launcher:
    """Return the launcher for rows of any length, which are split into tiles."""
    return _launcher(x.shape[-1], _TILE, x.dtype, x.device.index)


def chunk_launcher(x: Tensor) -> Launcher:
    """Return the launcher for rows that are split into chunks of the longest row that fits one thread block."""
    return _launcher(x.shape[-1], max_block_length(x.device.index, x.dtype.itemsize), x.dtype, x.device.index)
