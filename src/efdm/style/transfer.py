"""Run a network with matching: the heart of style transfer, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from efdm.models import StyleNetwork
from efdm.ops import MATCHERS, PreparedStyle, blend
from efdm.style.tiles import in_shares, run_decoder, run_stage, tile_side


def transfer(
    network: StyleNetwork,
    content: Tensor,
    styles: Sequence[Tensor | PreparedStyle],
    *,
    method: str = "efdm",
    strength: float = 1.0,
    options: Mapping[str, Any] = {},
) -> Tensor:
    """The content picture with the style's features: ``styles`` are the style's features after every stage."""
    if len(styles) != len(network.stages):
        raise ValueError(f"{network.name} has {len(network.stages)} stages and got the styles of {len(styles)}")
    return restyled(network, content, lambda depth, x: MATCHERS[method](x, styles[depth], **options), strength=strength)


def restyled(
    network: StyleNetwork,
    content: Tensor,
    match: Callable[[int, Tensor], Tensor],
    tile: str | int = "none",
    strength: float | Tensor = 1.0,
) -> Tensor:
    """The content picture with whatever ``match(depth, features)`` makes of its features after every stage.

    Below full strength the last matched features are blended with what the content alone has there. With one stage that is
    the paper's trade-off; with several, blending after each would be nearly all style at a strength of a half.
    """
    size = (content.shape[-2], content.shape[-1])
    side = tile_side(tile, size)
    blended = isinstance(strength, Tensor) or strength != 1
    x = alone = content
    for depth in range(len(network.stages)):
        x = run_stage(network, depth, x, size, side)
        if blended:
            alone = x if depth == 0 else run_stage(network, depth, alone, size, side)
        x = match(depth, x)
    if blended:
        matched = x
        x = in_shares(alone, lambda some, channels: blend(some, matched[:, channels], strength))
    return run_decoder(network, x, size, side)
