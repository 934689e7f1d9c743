"""Tolerant matching on CUDA devices, in one thread block per row or in tiles of a row."""

from __future__ import annotations

import struct
from typing import Literal

import torch
from torch import Tensor

from efdm.kernels.cuda_launch import MERGE_ITEMS, THREADS, block_launcher, tile_launcher


def match_in_block(x: Tensor, values: Tensor, tolerance: float, content: Literal["sorted", "unsorted"]) -> Tensor:
    """Average sorted values over similar content in one launch, which sorts the content unless it is sorted already."""
    launcher, out = block_launcher(x), torch.empty_like(values)
    numbers = (_bits(tolerance), int(content == "sorted"))
    launcher.per_tile("match_tolerant", x, values, out, *numbers, shared=launcher.tolerant_shared)
    return out


def average_in_tiles(content: Tensor, values: Tensor, tolerance: float, positions: Tensor | None = None) -> Tensor:
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
