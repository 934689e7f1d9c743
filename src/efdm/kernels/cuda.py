"""Rows on a CUDA device: sort_match.cu, compiled for the row length at hand.

A row up to ``max_block_length(...)`` is sorted by one thread block in shared memory, both sides in one launch. A longer row
is cut into chunks of that length, which are sorted and then merged in pairs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from efdm.kernels.floats import INFINITY_BITS
from efdm.kernels.nvrtc import Module, unavailable_reason

MAX_CHUNKED_LENGTH = 65_536  # relu1_1 of a 256 px picture; positions are 16 bits wide

# Longest row: threads of a block, and blocks wanted on a multiprocessor by kernels that sort both sides or one. Up to 16
# elements a thread keep the registers at 64, so that 1024 threads share a multiprocessor; kernels that sort one side gain
# from more blocks, down to about 40 registers. Tuned on an H200; 8 and 32 elements were slower but for rows of about 1000.
_BLOCKS = {
    512: (32, 32, 32),
    832: (64, 16, 24),
    2048: (128, 8, 12),
    4096: (256, 4, 5),
    8192: (512, 2, 3),
    16_384: (1024, 1, 1),
}
_SOURCE = Path(__file__).with_name("sort_match.cu")
_ELEMENTS = 256  # threads of a block in the kernels without a sort
_MERGED = 8  # elements of a thread that merges, as in sort_match.cu
_SIDE = 64  # of the squares that to_rows turns, as there
_MIXERS = 512  # threads of a block of mix_ordered, as there
_MIX_SHARED = 112 * 1024  # its shared memory, so that a multiprocessor of an H200 has two blocks
_SECTOR = 32  # bytes that memory reads and writes at once

__all__ = ["MAX_CHUNKED_LENGTH", "block", "chunks", "max_block_length", "unavailable_reason"]


def _row_of(n: int) -> tuple[int, int, int]:
    return next(row for longest, row in _BLOCKS.items() if n <= longest)


def _block(n: int) -> tuple[int, int]:
    """Threads, and elements of a thread, for a row of n."""
    threads = _row_of(n)[0]
    return threads, -(-n // threads)


def _shared_bytes(threads: int, items: int, width: int) -> int:
    """What sort_match.cu asks for: counts or exchanged words, and a copy of the keys when they are 32 bits wide."""
    counts, words = threads // 32 * 256 * 4 + 32 * 4, threads * items * 4
    return -(-max(counts, words) // 16) * 16 + (words if width == 4 else 0)


@cache
def _most_shared(device: int) -> int:
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined,no-any-return]


def _mix_shared(device: int) -> int:
    return min(_MIX_SHARED, _most_shared(device))


@cache
def max_block_length(device: int, width: int) -> int:
    """The longest row whose sort fits the shared memory of a block on this device; width is 2 or 4 bytes."""
    return max(n for n in _BLOCKS if _shared_bytes(*_block(n), width) <= _most_shared(device))


@cache
def _module(threads: int, items: int, width: int, device: int) -> Module:
    _, both_sides, one_side = _row_of(threads * items)
    settings = {"THREADS": threads, "ITEMS": items, "HALF": int(width == 2)}
    settings |= {"BLOCKS_BOTH_SIDES": both_sides, "BLOCKS_ONE_SIDE": one_side}
    return Module(_SOURCE.read_text(), settings, device, max(_shared_bytes(threads, items, width), _mix_shared(device)))


class _Launcher:
    """What the launches for one row length, type and device have in common."""

    def __init__(self, n: int, longest: int, dtype: torch.dtype, device: int) -> None:
        width = dtype.itemsize
        self.n, self.infinity = n, INFINITY_BITS[dtype]
        self.threads, items = _block(longest)
        self.module = _module(self.threads, items, width, device)
        self.shared = _shared_bytes(self.threads, items, width)
        self.capacity = self.threads * items
        self.chunks = -(-n // self.capacity)

    def sort(self, kernel: str, x: Tensor, *others: Tensor | int) -> None:
        """One block for each row."""
        if rows := x.numel() // self.n:
            self.module.launch(kernel, rows, self.threads, self.shared, x, *others, self.n, self.infinity)

    def sort_chunks(self, kernel: str, x: Tensor, *others: Tensor) -> None:
        """One block for each chunk."""
        if rows := x.numel() // self.n:
            numbers = (self.n, self.chunks, self.infinity)
            self.module.launch(kernel, rows * self.chunks, self.threads, self.shared, x, *others, *numbers)

    def each(self, kernel: str, elements: int, x: Tensor, *others: Tensor | int | None) -> None:
        """One thread for so many elements."""
        if rows := x.numel() // self.n:
            self.module.launch(kernel, rows * -(-self.n // (_ELEMENTS * elements)), _ELEMENTS, 0, x, *others)


@cache
def _block_launcher(n: int, dtype: torch.dtype, device: int) -> _Launcher:
    return _Launcher(n, n, dtype, device)


@cache
def _chunk_launcher(n: int, dtype: torch.dtype, device: int) -> _Launcher:
    return _Launcher(n, max_block_length(device, dtype.itemsize), dtype, device)


def _rank_like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.int32, device=x.device)


class block:
    """Rows that one thread block can hold."""

    @staticmethod
    def sort_match(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        _block_launcher(x.shape[-1], x.dtype, x.device.index).sort("match_style", x, y, out)
        return out

    @staticmethod
    def match_sorted(x: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        _block_launcher(x.shape[-1], x.dtype, x.device.index).sort("match_sorted", x, values, out)
        return out

    @staticmethod
    def sort_rows(y: Tensor) -> Tensor:
        out = torch.empty_like(y)
        _block_launcher(y.shape[-1], y.dtype, y.device.index).sort("sort_rows", y, out)
        return out

    @staticmethod
    def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), _rank_like(x)
        _block_launcher(x.shape[-1], x.dtype, x.device.index).sort("sort_rank", x, values, rank)
        return values, rank

    @staticmethod
    def take(values: Tensor, rank: Tensor) -> Tensor:
        out = torch.empty_like(values)
        _block_launcher(values.shape[-1], values.dtype, values.device.index).each(
            "take", 1, values, rank, out, values.shape[-1]
        )
        return out

    @staticmethod
    def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        """Rows as they lie, or with the channels last: behind convolutions they often are."""
        if not x.numel():
            return torch.empty_like(x)
        channels_last = not x.is_contiguous() and x.mT.is_contiguous()
        x, weight = x if channels_last else x.contiguous(), weight.contiguous()
        batch, channels, n = x.shape
        launcher = _block_launcher(n, x.dtype, x.device.index)
        rows, order = (torch.empty(x.shape, dtype=dtype, device=x.device) for dtype in (x.dtype, torch.int16))
        if channels_last:
            squares = batch * -(-channels // _SIDE) * -(-n // _SIDE)
            launcher.module.launch("to_rows", squares, _ELEMENTS, 0, x, rows, weight, batch, channels, n)
        values = torch.empty_like(rows)
        launcher.sort("sort_order", rows if channels_last else x, values, order, weight, batch)
        return _mixed(launcher, x, values, order, partner.contiguous(), weight, channels_last)


def _mixed(
    launcher: _Launcher, x: Tensor, values: Tensor, order: Tensor, partner: Tensor, weight: Tensor, channels_last: bool
) -> Tensor:
    out, (batch, channels, n), width = torch.empty_like(x), x.shape, x.dtype.itemsize
    words = -(-n * width // 4) | 1  # of a line: odd, so that the same place of neighbouring lines is in different banks
    group = _SECTOR // width  # channels that are written together
    while group > 1 and group * words * 4 > _mix_shared(x.device.index):
        group //= 2
    numbers = (batch, channels, n, group, words * 4 // width, int(channels_last), launcher.infinity)
    launcher.module.launch(
        "mix_ordered", batch * -(-channels // group), _MIXERS, group * words * 4, x, values, order, partner, weight, out,
        *numbers,
    )  # fmt: skip
    return out


class chunks:
    """Rows longer than a block: sorted in chunks, then merged in pairs."""

    @staticmethod
    def _launcher(x: Tensor) -> _Launcher:
        return _chunk_launcher(x.shape[-1], x.dtype, x.device.index)

    @classmethod
    def _place(
        cls,
        x: Tensor,
        values: Tensor | None = None,
        out: Tensor | None = None,
        ordered: Tensor | None = None,
        rank: Tensor | None = None,
    ) -> None:
        """Sort the content and write what is asked for: values placed by rank, the sorted content, the ranks."""
        launcher = cls._launcher(x)
        keys, positions = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int16, device=x.device)
        launcher.sort_chunks("chunk_content", x, keys, positions)
        run = launcher.capacity
        while 2 * run < launcher.n:
            merged = torch.empty_like(keys), torch.empty_like(positions)
            launcher.each("merge_content", _MERGED, keys, positions, *merged, launcher.n, run)
            (keys, positions), run = merged, 2 * run
        launcher.each("place_content", _MERGED, keys, positions, x, values, out, ordered, rank, launcher.n, run)

    @classmethod
    def sort_match(cls, x: Tensor, y: Tensor) -> Tensor:
        return cls.match_sorted(x, cls.sort_rows(y))

    @classmethod
    def match_sorted(cls, x: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        cls._place(x, values=values, out=out)
        return out

    @classmethod
    def sort_rows(cls, y: Tensor) -> Tensor:
        launcher = cls._launcher(y)
        keys = torch.empty_like(y)
        launcher.sort_chunks("chunk_style", y, keys)
        run, is_last = launcher.capacity, False
        while not is_last:
            is_last, merged = 2 * run >= launcher.n, torch.empty_like(y)
            launcher.each("merge_style", _MERGED, keys, merged, launcher.n, run, int(is_last))
            keys, run = merged, 2 * run
        return keys

    @classmethod
    def sort_rank(cls, x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), _rank_like(x)
        cls._place(x, ordered=values, rank=rank)
        return values, rank

    @classmethod
    def take(cls, values: Tensor, rank: Tensor) -> Tensor:
        out = torch.empty_like(values)
        cls._launcher(values).each("take", 1, values, rank, out, values.shape[-1])
        return out

    @classmethod
    def mix_partners(cls, x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        launcher, (values, rank), out = cls._launcher(x), cls.sort_rank(x), torch.empty_like(x)
        numbers = (x.shape[1], launcher.n, launcher.infinity)
        launcher.each("mix_ranked", 1, x, values, rank, partner, weight, out, *numbers)
        return out
