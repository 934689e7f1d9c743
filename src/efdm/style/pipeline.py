"""Style transfer on tensors: run a network and match its features after every stage.

The convolutions of a large image run on overlapping tiles, which bounds the memory of their intermediate results. Features
are matched on the whole feature map, so the result does not depend on the tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from efdm.models import StyleNetwork
from efdm.ops import MATCHERS, PreparedStyle, blend

FADE = 0.25  # strength below which pixels of the content are blended in, because a decoder cannot reproduce it exactly
LARGE = 2_000_000  # pixels above which an image is cut into tiles
TILE = 1024  # side in pixels; larger tiles recompute less at their borders and need more memory
CHUNK = 8_000_000  # values of a picture matched in one call


def transfer(
    network: StyleNetwork,
    content: Tensor,
    styles: Sequence[Tensor | PreparedStyle],
    *,
    method: str = "efdm",
    strength: float = 1.0,
    options: Mapping[str, Any] | None = None,
) -> Tensor:
    """Return the stylized content. ``styles`` holds the features of the style after every stage.

    ``options`` of the method default to `match_options`.
    """
    arguments = match_options(network, method) if options is None else options
    if len(styles) != len(network.stages):
        raise ValueError(f"{network.name} has {len(network.stages)} stages, got style features for {len(styles)}")
    output = run_network(network, content, lambda depth, x: MATCHERS[method](x, styles[depth], **arguments), strength)
    return fade(content, output, strength)


def match_options(
    network: StyleNetwork,
    method: str = "efdm",
    ties: str | None = None,
    tolerance: float | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """Return the options of a match. The tolerance defaults to that of the network, or to 0 with ``ties``."""
    if method != "efdm":
        return {}
    if tolerance is None:
        tolerance = network.tolerance if ties is None else 0.0
    order = {} if ties is None else {"ties": ties, "generator": generator}
    return {**({"tolerance": tolerance} if tolerance else {}), **order}


def run_network(
    network: StyleNetwork,
    content: Tensor,
    match: Callable[[int, Tensor], Tensor],
    strength: float | Tensor = 1.0,
    start: Tensor | None = None,
) -> Tensor:
    """Return the decoded content, with ``match(depth, features)`` applied after every stage.

    Below full strength, the last matched features are blended with the unmatched features of the content. With one stage
    this is the paper's trade-off. With several stages, blending after each would give nearly full style at strength 0.5.
    ``start`` replaces the content in the stages that are matched.
    """
    size = content.shape[-2:]
    blended = isinstance(strength, Tensor) or strength != 1
    unmatched, x = content, content if start is None else start
    for depth in range(len(network.stages)):
        shared = depth == 0 and start is None
        x = run_stage(network, depth, x, size)
        if blended:
            unmatched = x if shared else run_stage(network, depth, unmatched, size)
        x = match(depth, x)
    if blended:
        matched = x
        x = map_channels(unmatched, lambda part, channels: blend(part, matched[:, channels], strength))
    return run_stage(network, len(network.stages), x, size)


def fade(content: Tensor, output: Tensor, strength: float | Tensor) -> Tensor:
    """Return the output of a network, blended with the content below a strength of `FADE`; strength 0 gives the content."""
    if isinstance(strength, Tensor):
        return torch.lerp(content, output, (strength.to(content) / FADE).clamp(max=1).view(-1, 1, 1, 1))
    return output if strength >= FADE else torch.lerp(content, output, strength / FADE)


def spans(length: int, tile: int, margin: int, grid: int, strides: Sequence[int]) -> Iterator[tuple[slice, slice, slice]]:
    """Cut a side of ``length`` pixels into tiles that start at multiples of ``grid``, each with a margin on both sides.

    Yields three slices per tile, in cells of the strides of input and output: the tile with margins in the input, the tile
    in the output, and the tile in the output of the input with margins.
    """
    tile, margin = _ceil(tile, grid) * grid, _ceil(margin, grid) * grid
    for start in range(0, length, tile):
        stop = min(start + tile, length)
        first, last = max(start - margin, 0), min(stop + margin, length)
        pixels = (first, last, strides[0]), (start, stop, strides[1]), (start - first, stop - first, strides[1])
        padded, core, inner = (slice(low // stride, _ceil(high, stride)) for low, high, stride in pixels)
        yield padded, core, inner


def run_stage(network: StyleNetwork, depth: int, x: Tensor, size: Sequence[int]) -> Tensor:
    """Return the output of stage ``depth`` for an image of ``size``. The decoder follows the last stage."""
    module = [*network.stages, network.decoder][depth]
    strides = (1, *network.strides, 1)[depth : depth + 2]
    height, width = (_ceil(side, strides[1]) for side in size)
    if size[0] * size[1] <= LARGE:
        return module(x)[..., :height, :width]  # decoding rounds the size up to a multiple of the stride
    tiles = (spans(side, TILE, network.receptive_field[depth], network.max_stride, strides) for side in size)
    out: Tensor | None = None
    for (top, rows, inner_rows), (left, columns, inner_columns) in itertools.product(*tiles):
        result = module(x[..., top, left].contiguous(memory_format=torch.channels_last))
        if out is None:
            out = result.new_empty(*result.shape[:2], height, width)  # contiguous: matching works channel by channel
        out[..., rows, columns] = result[..., inner_rows, inner_columns]
    assert out is not None
    return out


def _ceil(length: int, step: int) -> int:
    return -(-length // step)


def map_channels(x: Tensor, function: Callable[[Tensor, slice], Tensor]) -> Tensor:
    """Apply ``function(x[:, channels], channels)`` to all channels, at once or, for large pictures, in chunks.

    Channels are matched independently, so chunks bound the memory of intermediate results.
    """
    if x.shape[1:].numel() <= CHUNK:
        return function(x, slice(None))
    count = max(1, CHUNK // x.shape[2:].numel())
    out = torch.empty_like(x)
    for first in range(0, x.shape[1], count):
        channels = slice(first, min(first + count, x.shape[1]))
        out[:, channels] = function(x[:, channels], channels)
    return out
