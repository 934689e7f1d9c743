"""Run a network tile by tile, so that memory does not grow with the image.

The convolutions of a stage run on overlapping tiles that fill one feature map. Features are matched on the whole map, so the
result does not depend on the tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.models import StyleNetwork

LARGE = 2_000_000  # pixels above which tile="auto" uses tiles
TILE = 1024  # side in pixels; larger tiles recompute less at their borders and need more memory
CHUNK = 8_000_000  # values of a picture matched in one call


class Span(NamedTuple):
    """A tile along one side, in pixels: its core from ``start`` to ``stop``, and from ``first`` to ``last`` with margins."""

    start: int
    stop: int
    first: int
    last: int

    def padded(self, stride: int) -> slice:
        return slice(self.first // stride, _ceil(self.last, stride))

    def core(self, stride: int) -> slice:
        return slice(self.start // stride, _ceil(self.stop, stride))

    def inner(self, stride: int) -> slice:
        """Return the core relative to the padded tile."""
        return slice((self.start - self.first) // stride, _ceil(self.stop - self.first, stride))


def tile_side(tile: str | int, size: tuple[int, int]) -> int | None:
    """Return the side of a tile in pixels for an image of ``size``, or None to run the whole image in one piece."""
    if isinstance(tile, int) and not isinstance(tile, bool) and tile >= 1:
        return tile
    if tile not in ("auto", "none"):
        raise ValueError(f"tile must be 'auto', 'none' or a side in pixels, got {tile!r}")
    return TILE if tile == "auto" and size[0] * size[1] > LARGE else None


def spans(length: int, tile: int, margin: int, grid: int) -> Iterator[Span]:
    """Cut a side of ``length`` pixels into tiles that start at multiples of ``grid``, each with a margin on both sides."""
    tile, margin = _ceil(tile, grid) * grid, _ceil(margin, grid) * grid
    for start in range(0, length, tile):
        stop = min(start + tile, length)
        yield Span(start, stop, max(start - margin, 0), min(stop + margin, length))


def run_stage(network: StyleNetwork, depth: int, x: Tensor, size: tuple[int, int], tile: int | None) -> Tensor:
    """Return the output of stage ``depth`` for an image of ``size``. The decoder follows the last stage."""
    module = [*network.stages, network.decoder][depth]
    stride_in, stride_out = (1, *network.strides, 1)[depth : depth + 2]
    height, width = (_ceil(side, stride_out) for side in size)
    if tile is None or tile >= max(size):
        return module(x)[..., :height, :width]  # decoding rounds the size up to a multiple of the stride
    rows, columns = (list(spans(side, tile, network.receptive_field[depth], network.max_stride)) for side in size)
    out: Tensor | None = None
    for row, column in itertools.product(rows, columns):
        part = x[..., row.padded(stride_in), column.padded(stride_in)]
        made = module(part.contiguous(memory_format=torch.channels_last))
        if out is None:
            out = made.new_empty(*made.shape[:2], height, width)  # contiguous: matching works channel by channel
        inner = made[..., row.inner(stride_out), column.inner(stride_out)]
        out[..., row.core(stride_out), column.core(stride_out)] = inner
    assert out is not None
    return out


def _ceil(length: int, step: int) -> int:
    return -(-length // step)


def map_channels(x: Tensor, function: Callable[[Tensor, slice], Tensor]) -> Tensor:
    """Return ``function(x[:, channels], channels)`` over all channels, in chunks if the pictures are large.

    Matching is independent for each channel, so chunks bound the memory of its intermediate results.
    """
    if x.shape[1:].numel() <= CHUNK:
        return function(x, slice(None))
    count = max(1, CHUNK // x.shape[2:].numel())
    out = torch.empty_like(x)
    for first in range(0, x.shape[1], count):
        channels = slice(first, min(first + count, x.shape[1]))
        out[:, channels] = function(x[:, channels], channels)
    return out
