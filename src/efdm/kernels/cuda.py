"""CUDA kernels: the functions of `reference` as launches of sort_match.cu.

Rows of up to `max_block_length` values are sorted by one thread block in shared memory, content and style in a single
launch. Rows of up to `MAX_CHUNKED_LENGTH` values are split into chunks of that length, which are sorted and merged in pairs.
Longer rows are split into tiles, one per block, and sorted byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from efdm.kernels import reference
from efdm.kernels.cuda_launch import MERGE_ITEMS, THREADS, Launcher, block_launcher, chunk_launcher, tile_launcher

MAX_CHUNKED_LENGTH = 65_536  # relu1_1 of a 256 px image; positions have 16 bits
MAX_LENGTH = 1 << 30  # sums of two indices fit 32 bits
_KEYS, _CONTENT, _STYLE = range(3)  # what an array holds, as in sort_match.cu
_OUTPUTS = ("values", "out", "ordered", "rank")  # of a sort of content, in the order of the kernels' parameters
_TRANSPOSE_SIDE = 64  # of the squares in to_rows, as in sort_match.cu


def _per_row(kernel: str, *inputs: Tensor) -> Tensor:
    """Launch a kernel whose only output is like its inputs, one block per row."""
    out = torch.empty_like(inputs[0])
    block_launcher(out).per_tile(kernel, *inputs, out)
    return out


def _take(launcher: Callable[[Tensor], Launcher], values: Tensor, rank: Tensor) -> Tensor:
    out = torch.empty_like(values)
    launcher(values).per_items("take", 1, values, rank, out, values.shape[-1])
    return out


def _match_in_block(x: Tensor, values: Tensor, tolerance: float, content: Literal["sorted", "unsorted"]) -> Tensor:
    """Average sorted values over similar content in one launch, which sorts the content unless it is sorted already."""
    launcher, out = block_launcher(x), torch.empty_like(values)
    numbers = (_bits(tolerance), int(content == "sorted"))
    launcher.per_tile("match_tolerant", x, values, out, *numbers, shared=launcher.tolerant_shared)
    return out


def _average_in_tiles(content: Tensor, values: Tensor, tolerance: float, positions: Tensor | None = None) -> Tensor:
    """Average sorted values over similar sorted content, and move them to its positions unless they are None."""
    n, out = values.shape[-1], torch.empty_like(values)
    launcher, tiles = tile_launcher(values), -(-n // (THREADS * MERGE_ITEMS))
    sums = torch.empty(values.shape, dtype=torch.float64, device=values.device)
    totals = torch.empty(values.numel() // n, tiles, 4, dtype=torch.float64, device=values.device)
    numbers = (n, launcher.infinity)
    launcher.per_items("sum_tiles", MERGE_ITEMS, content, values, sums, totals, *numbers)
    short = positions is not None and positions.dtype == torch.int16
    tensors = (content, values, sums, totals.cumsum(1), positions if short else None, None if short else positions, out)
    launcher.per_items("average_tiles", MERGE_ITEMS, *tensors, _bits(tolerance), *numbers)
    return out


def _bits(number: float) -> int:
    return int.from_bytes(struct.pack("<d", number), "little")  # every argument is passed as 64 bits


def _rank_like(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.int32, device=x.device)


def _dense(x: Tensor) -> Tensor:
    """Return features that are contiguous or channels-last, without copying if possible."""
    return x if x.mT.is_contiguous() else x.contiguous()


def _themselves(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return each sample as its own partner, and weights that are all zero exactly if the matrix is zero."""
    largest = torch.linalg.vector_norm(matrix.detach().float(), float("inf"), dim=-1 if matrix.ndim == 2 else (0, -1))
    return torch.arange(matrix.shape[-1], device=matrix.device), largest


class block:
    """Functions of `reference` for rows that fit one thread block."""

    sort_match = staticmethod(partial(_per_row, "match_style"))
    match_sorted = staticmethod(partial(_per_row, "match_sorted"))
    sort_rows = staticmethod(partial(_per_row, "sort_rows"))
    take = staticmethod(partial(_take, block_launcher))
    quantile_values = staticmethod(reference.quantile_values)

    @staticmethod
    def sort_rank(x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), _rank_like(x)
        block_launcher(x).per_tile("sort_rank", x, values, rank, None, None, 0)
        return values, rank

    @staticmethod
    def tolerant_match(x: Tensor, values: Tensor, tolerance: float) -> Tensor:
        if block_launcher(x).has_tolerant:
            return _match_in_block(x, values, tolerance, "unsorted")
        return chunks.tolerant_match(x, values, tolerance)

    @staticmethod
    def tolerant_values(content: Tensor, values: Tensor, tolerance: float) -> Tensor:
        if block_launcher(content).has_tolerant:
            return _match_in_block(content, values, tolerance, "sorted")
        return _average_in_tiles(content, values, tolerance)

    @staticmethod
    def mix_partners(x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        return block.mix_order(x, partner, weight)[0]

    @staticmethod
    def mix_order(x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Mix contiguous or channels-last features without copying."""
        x, weight = _dense(x), weight.contiguous()
        values, order = block._sort_order(x, weight)
        return block._mix_sorted(x, values, order, partner.contiguous(), weight), order

    @staticmethod
    def _sort_order(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sorted rows of dense features and the position of every rank, undefined if all weights are zero."""
        order = torch.empty(x.shape, dtype=torch.int16, device=x.device)
        values = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        (batch, channels, n), launcher, rows = x.shape, block_launcher(x), x
        if not x.is_contiguous():
            rows = torch.empty_like(values)
            squares = batch * -(-channels // _TRANSPOSE_SIDE) * -(-n // _TRANSPOSE_SIDE)
            launcher.module.launch("to_rows", squares, THREADS, 0, x, rows, weight, batch, channels, n)
        launcher.per_tile("sort_rank", rows, values, None, order, weight, batch)
        return values, order

    @staticmethod
    def _mix_sorted(x: Tensor, values: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        """Mix sorted rows with those of the partners and restore the order and the memory format of ``x``."""
        out = torch.empty_like(x)
        block_launcher(x).per_group("mix_ordered", x, values, order, partner, weight, out)
        return out

    @staticmethod
    def mix_backward(grad: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient without copying a contiguous or channels-last one."""
        grad, order, weight = _dense(grad), order.contiguous(), weight.contiguous()
        out = torch.empty_like(grad)
        ordered, givers = block._order_gradient(grad, order, partner.contiguous(), weight)
        block_launcher(grad).per_group("add_gradients", grad, ordered, order, givers, weight, out)
        return out

    @staticmethod
    def _order_gradient(grad: Tensor, order: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient in the order of the ranks, and lists of the samples mixed with each sample."""
        ordered = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
        givers = torch.empty(2, grad.shape[0], dtype=torch.int32, device=grad.device)
        block_launcher(grad).per_group("order_gradient", grad, order, partner, weight, ordered, givers)
        return ordered, givers

    @staticmethod
    def combine_order(x: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Combine contiguous or channels-last features without copying. A matrix of zeros only copies ``x``."""
        x, (themselves, weight) = _dense(x), _themselves(matrix)
        values, order = block._sort_order(x, weight)
        return block._mix_sorted(x, reference.combined(values, matrix), order, themselves, weight), order

    @staticmethod
    def combine_backward(grad: Tensor, order: Tensor, matrix: Tensor) -> Tensor:
        grad, order, (themselves, weight) = _dense(grad), order.contiguous(), _themselves(matrix)
        ordered, _ = block._order_gradient(grad, order, themselves, weight)
        return block._mix_sorted(grad, reference.combined(ordered, matrix.mT), order, themselves, weight)


class _long_rows:
    """Functions of `reference` for rows that several blocks sort. Subclasses define ``sort_rows`` and ``_sort_content``.

    The latter writes those `_OUTPUTS` that are given: ``values`` scattered by rank to ``out``, sorted content, ranks.
    """

    sort_rows: Callable[[Tensor], Tensor]
    _sort_content: Callable[..., None]

    @classmethod
    def sort_match(cls, x: Tensor, y: Tensor) -> Tensor:
        return cls.match_sorted(x, cls.sort_rows(y))

    @classmethod
    def match_sorted(cls, x: Tensor, values: Tensor) -> Tensor:
        out = torch.empty_like(values)
        cls._sort_content(x, values=values, out=out)
        return out

    @classmethod
    def sort_rank(cls, x: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = torch.empty_like(x), _rank_like(x)
        cls._sort_content(x, ordered=values, rank=rank)
        return values, rank

    take = staticmethod(partial(_take, tile_launcher))
    inverse = staticmethod(reference.inverse)
    tolerant_values = staticmethod(_average_in_tiles)
    quantile_values = staticmethod(reference.quantile_values)

    @classmethod
    def mix_partners(cls, x: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        return cls._mix_ranked(x, *cls.sort_rank(x), partner, weight)

    @classmethod
    def mix_order(cls, x: Tensor, partner: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        values, rank = cls.sort_rank(x)
        order = reference.inverse(rank).to(reference.order_dtype(x.shape[-1]))
        return cls._mix_ranked(x, values, rank, partner, weight), order

    @staticmethod
    def _mix_ranked(x: Tensor, values: Tensor, rank: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        launcher, out = tile_launcher(x), torch.empty_like(x)
        numbers = (x.shape[1], launcher.n, launcher.infinity)
        launcher.per_items("mix_ranked", 1, x, values, rank, partner, weight, out, *numbers)
        return out

    mix_backward = staticmethod(reference.mix_backward)

    @classmethod
    def combine_order(cls, x: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        return reference.combine_order(x, matrix, cls)

    @classmethod
    def combine_backward(cls, grad: Tensor, order: Tensor, matrix: Tensor) -> Tensor:
        return reference.combine_backward(grad, order, matrix, cls)


class chunks(_long_rows):
    """Rows that are sorted in chunks and merged in pairs."""

    @staticmethod
    def sort_rows(y: Tensor) -> Tensor:
        launcher, keys = chunk_launcher(y), torch.empty_like(y)
        launcher.per_tile("chunk_style", y, keys)
        run, is_last = launcher.capacity, False
        while not is_last:
            is_last, merged = 2 * run >= launcher.n, torch.empty_like(y)
            launcher.per_items("merge_style", MERGE_ITEMS, keys, merged, launcher.n, run, int(is_last))
            keys, run = merged, 2 * run
        return keys

    @staticmethod
    def _sort_content(x: Tensor, **outputs: Tensor) -> None:
        (keys, positions, run), launcher = chunks._sort_halves(x), chunk_launcher(x)
        written = map(outputs.get, _OUTPUTS)
        launcher.per_items("scatter_content", MERGE_ITEMS, keys, positions, x, *written, launcher.n, run)

    @staticmethod
    def _sort_halves(x: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return the keys and the positions of the content before the last merge, and the length of a sorted run."""
        launcher = chunk_launcher(x)
        keys, positions = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int16, device=x.device)
        launcher.per_tile("chunk_content", x, keys, positions)
        run = launcher.capacity
        while 2 * run < launcher.n:
            keys, positions = chunks._merge(keys, positions, run)
            run *= 2
        return keys, positions, run

    @staticmethod
    def _merge(keys: Tensor, positions: Tensor, run: int) -> tuple[Tensor, Tensor]:
        """Merge runs in pairs. The last merge returns sorted values instead of keys."""
        launcher, merged = chunk_launcher(keys), (torch.empty_like(keys), torch.empty_like(positions))
        numbers = (launcher.n, run, int(2 * run >= launcher.n))
        launcher.per_items("merge_content", MERGE_ITEMS, keys, positions, *merged, *numbers)
        return merged

    @staticmethod
    def tolerant_match(x: Tensor, values: Tensor, tolerance: float) -> Tensor:
        content, positions = chunks._merge(*chunks._sort_halves(x))
        return _average_in_tiles(content, values, tolerance, positions)


class radix(_long_rows):
    """Rows of any length, which all blocks sort together."""

    @staticmethod
    def sort_rows(y: Tensor) -> Tensor:
        kind = _STYLE
        for byte in range(y.dtype.itemsize):
            keys, y = y, torch.empty_like(y)
            tile_launcher(y).per_tile("move_style", keys, *radix._count_digits(keys, kind, byte), y, kind, byte)
            kind = _KEYS
        return y

    @staticmethod
    def _count_digits(keys: Tensor, kind: int, byte: int) -> tuple[Tensor, Tensor]:
        """Return how often each digit occurs in each tile, and the cumulative sum over all rows, digits and tiles."""
        launcher = tile_launcher(keys)
        shape = (keys.numel() // launcher.n, 256, launcher.tiles)
        counts = torch.empty(shape, dtype=torch.int32, device=keys.device)
        launcher.per_tile("count_digits", keys, counts, kind, byte)
        return counts, counts.view(-1).cumsum(0)

    @staticmethod
    def _sort_content(x: Tensor, **outputs: Tensor) -> None:
        """Also write the positions to ``order`` if it is given."""
        keys, positions, kind, last = x, None, _CONTENT, x.dtype.itemsize - 1
        for byte in range(last):
            moved = torch.empty_like(x), _rank_like(x)
            counted = radix._count_digits(keys, kind, byte)
            none = (None,) * (1 + len(_OUTPUTS))
            tile_launcher(x).per_tile("move_content", keys, positions, *counted, *moved, *none, kind, byte)
            (keys, positions), kind = moved, _KEYS
        counted = radix._count_digits(keys, kind, last)
        written = (None, outputs.get("order"), x, *map(outputs.get, _OUTPUTS))
        tile_launcher(x).per_tile("move_content", keys, positions, *counted, *written, kind, last)

    @staticmethod
    def tolerant_match(x: Tensor, values: Tensor, tolerance: float) -> Tensor:
        content, order = torch.empty_like(x), _rank_like(x)
        radix._sort_content(x, ordered=content, order=order)
        return _average_in_tiles(content, values, tolerance, order)
