"""Networks run piece by piece, so that a picture of any size fits into memory, with the result of one piece.

Every stage's convolutions run on overlapping tiles and fill one whole feature map; whoever matches sees the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.models import StyleNetwork

GRID = 8  # pixels; no network takes longer steps, so tiles that begin on this grid see what the whole picture sees
LARGE = 2_000_000  # pixels, above which "auto" means tiles
TILE = 1024  # pixels; larger tiles repeat less work at their borders and need more memory
SHARE = 8_000_000  # values that are matched at once


class Piece(NamedTuple):
    """A part of a side, in pixels: what is wanted, and what has to be looked at for it."""

    start: int
    stop: int
    first: int
    last: int

    def looked_at(self, step: int) -> slice:
        return slice(self.first // step, _ceil(self.last, step))

    def wanted(self, step: int) -> slice:
        return slice(self.start // step, _ceil(self.stop, step))

    def inside(self, step: int) -> slice:
        """What is wanted, counted from where we begin to look."""
        return slice((self.start - self.first) // step, _ceil(self.stop - self.first, step))


def tile_side(tile: str | int, size: tuple[int, int]) -> int | None:
    """What a choice means for a picture of this size: a tile's side in pixels, or none for the whole picture at once."""
    if isinstance(tile, int) and not isinstance(tile, bool) and tile >= 1:
        return tile
    if tile not in ("auto", "none"):
        raise ValueError(f"tile={tile!r} is not 'auto', 'none' or a side in pixels")
    return TILE if tile == "auto" and size[0] * size[1] > LARGE else None


def run_stage(network: StyleNetwork, depth: int, x: Tensor, size: tuple[int, int], tile: int | None) -> Tensor:
    """The features after stage ``depth`` of a picture of ``size``, from those before it."""
    strides = (1, *network.strides)
    return _run(network.stages[depth], x, size, tile, strides[depth], strides[depth + 1], network.reach[depth])


def run_decoder(network: StyleNetwork, x: Tensor, size: tuple[int, int], tile: int | None) -> Tensor:
    """A picture of ``size`` from the features after the last stage."""
    return _run(network.decoder, x, size, tile, network.strides[-1], 1, network.reach[-1])


def pieces(length: int, tile: int, reach: int) -> Iterator[Piece]:
    tile, reach = _ceil(tile, GRID) * GRID, _ceil(reach, GRID) * GRID
    for start in range(0, length, tile):
        stop = min(start + tile, length)
        yield Piece(start, stop, max(start - reach, 0), min(stop + reach, length))


def _run(
    module: Callable[[Tensor], Tensor],
    x: Tensor,
    size: tuple[int, int],
    tile: int | None,
    step_in: int,
    step_out: int,
    reach: int,
) -> Tensor:
    height, width = (_ceil(side, step_out) for side in size)
    if tile is None or tile >= max(size):
        return module(x)[..., :height, :width]  # a decoder's steps may lead past the edge
    out: Tensor | None = None
    for rows in pieces(size[0], tile, reach):
        for columns in pieces(size[1], tile, reach):
            seen = x[..., rows.looked_at(step_in), columns.looked_at(step_in)]
            made = module(seen.contiguous(memory_format=torch.channels_last))
            if out is None:
                out = made.new_empty(*made.shape[:2], height, width)  # channels apart, as matching wants them
            kept = made[..., rows.inside(step_out), columns.inside(step_out)]
            out[..., rows.wanted(step_out), columns.wanted(step_out)] = kept
    assert out is not None
    return out


def _ceil(length: int, step: int) -> int:
    return -(-length // step)


def in_shares(x: Tensor, work: Callable[[Tensor, slice], Tensor]) -> Tensor:
    """``work(x[:, channels], channels)`` for all channels, some at a time where there is much: matching looks at every
    channel alone, and what it needs on the way stays small."""
    if x.numel() <= SHARE:
        return work(x, slice(None))
    channels = max(1, SHARE * x.shape[1] // x.numel())
    out = torch.empty_like(x)
    for first in range(0, x.shape[1], channels):
        some = slice(first, min(first + channels, x.shape[1]))
        out[:, some] = work(x[:, some], some)
    return out
