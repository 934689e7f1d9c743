"""Rows on a CUDA device: sort_match.cu, compiled for the row length at hand.

A row up to ``longest_block(...)`` is sorted by one thread block in shared memory, both sides in one launch. A longer row
is cut into chunks of that length, which are sorted and then merged in pairs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from efdm.kernels.nvrtc import Module, why_not

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LONGEST_CHUNKED = 65_536  # relu1_1 of a 256 px picture; positions are 16 bits wide

# longest row: threads of a block. Up to sixteen elements a thread keep the registers at 64, so that 1024 threads share a
# multiprocessor; 8 and 32 elements were slower on an H200, but for rows of about 1000.
_THREADS = {512: 32, 832: 64, 2048: 128, 4096: 256, 8192: 512, 16_384: 1024}
_INFINITY = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
_SOURCE = Path(__file__).with_name("sort_match.cu")
_ELEMENTS = 256  # threads of a block in the kernels without a sort
_MERGED = 8  # elements of a thread that merges, as in sort_match.cu

__all__ = ["DTYPES", "LONGEST_CHUNKED", "longest_block", "why_not"]


def _block(n: int) -> tuple[int, int]:
    """Threads, and elements of a thread, for a row of n."""
    threads = next(t for longest, t in _THREADS.items() if n <= longest)
    return threads, -(-n // threads)


def _shared_bytes(threads: int, items: int, width: int) -> int:
    """What sort_match.cu asks for: counts or exchanged words, and a copy of the keys when they are 32 bits wide."""
    counts, words = threads // 32 * 256 * 4 + 32 * 4, threads * items * 4
    return -(-max(counts, words) // 16) * 16 + (words if width == 4 else 0)


@cache
def longest_block(device: int, width: int) -> int:
    """The longest row whose sort fits the shared memory of a block on this device; width is 2 or 4 bytes."""
    limit = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    return max(n for n in _THREADS if _shared_bytes(*_block(n), width) <= limit)


@cache
def _module(threads: int, items: int, width: int, device: int) -> Module:
    settings = {"THREADS": threads, "ITEMS": items, "HALF": int(width == 2)}
    settings |= {"BLOCKS_BOTH_SIDES": 1024 // threads, "BLOCKS_ONE_SIDE": 1536 // threads}
    return Module(_SOURCE.read_text(), settings, device, _shared_bytes(threads, items, width))


class _Rows:
    """One call: the module for a row length, and the numbers every launch needs."""

    def __init__(self, x: Tensor, longest: int | None = None) -> None:
        self.rows, self.n = x.shape
        self.device, self.infinity = x.device.index, _INFINITY[x.dtype]
        self.threads, items = _block(longest or self.n)
        self.module = _module(self.threads, items, x.element_size(), self.device)
        self.shared = _shared_bytes(self.threads, items, x.element_size())
        self.capacity = self.threads * items
        self.chunks = -(-self.n // self.capacity)

    def sort(self, kernel: str, *arguments: Tensor) -> None:
        """One block per row."""
        if self.rows and self.n:
            self.module.launch(kernel, (self.rows, 1), self.threads, self.shared, *arguments, self.n, self.infinity)

    def sort_chunks(self, kernel: str, *arguments: Tensor) -> None:
        """One block per chunk."""
        if self.rows and self.n:
            blocks = self.rows * self.chunks
            self.module.launch(
                kernel, (blocks, 1), self.threads, self.shared, *arguments, self.n, self.chunks, self.infinity
            )

    def each(self, kernel: str, elements: int, *arguments: Tensor | int | None) -> None:
        """One thread for so many elements."""
        if self.rows and self.n:
            self.module.launch(kernel, (self.rows, -(-self.n // (_ELEMENTS * elements))), _ELEMENTS, 0, *arguments)


def _rank_like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.int32, device=x.device)


class block:
    """Rows that one thread block can hold."""

    @staticmethod
    def sort_match(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        _Rows(x).sort("match_style", x, y, out)
        return out

    @staticmethod
    def match_sorted(x: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        _Rows(x).sort("match_sorted", x, values, out)
        return out

    @staticmethod
    def sort_rows(y: Tensor) -> Tensor:
        out = torch.empty_like(y)
        _Rows(y).sort("sort_rows", y, out)
        return out

    @staticmethod
    def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), _rank_like(x)
        _Rows(x).sort("sort_rank", x, values, rank)
        return values, rank

    @staticmethod
    def take(values: Tensor, rank: Tensor) -> Tensor:
        out = torch.empty_like(values)
        _Rows(values).each("take", 1, values, rank, out, values.shape[1])
        return out


class chunks:
    """Rows longer than a block: sorted in chunks, then merged in pairs."""

    @staticmethod
    def _rows(x: Tensor) -> _Rows:
        return _Rows(x, longest_block(x.device.index, x.element_size()))

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
        rows = cls._rows(x)
        keys, positions = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int16, device=x.device)
        rows.sort_chunks("chunk_content", x, keys, positions)
        run = rows.capacity
        while 2 * run < rows.n:
            merged = torch.empty_like(keys), torch.empty_like(positions)
            rows.each("merge_content", _MERGED, keys, positions, *merged, rows.n, run)
            (keys, positions), run = merged, 2 * run
        rows.each("place_content", _MERGED, keys, positions, x, values, out, ordered, rank, rows.n, run)

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
        rows = cls._rows(y)
        keys = torch.empty_like(y)
        rows.sort_chunks("chunk_style", y, keys)
        run, is_last = rows.capacity, False
        while not is_last:
            is_last, merged = 2 * run >= rows.n, torch.empty_like(y)
            rows.each("merge_style", _MERGED, keys, merged, rows.n, run, int(is_last))
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
        cls._rows(values).each("take", 1, values, rank, out, values.shape[1])
        return out
