"""Style transfer on tensors: run a network and match its features after every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from efdm.errors import SettingError
from efdm.models import StyleNetwork
from efdm.ops import MATCHERS, PreparedStyle, blend
from efdm.ops.choices import check_tolerance
from efdm.style.tiles import map_channels, run_stage, tile_side

FADE = 0.25  # strength below which pixels of the content are blended in, because a decoder cannot reproduce it exactly


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
    given = match_options(network, method) if options is None else options
    if len(styles) != len(network.stages):
        raise ValueError(f"{network.name} has {len(network.stages)} stages, got style features for {len(styles)}")
    output = run_network(network, content, lambda depth, x: MATCHERS[method](x, styles[depth], **given), strength=strength)
    return fade(content, output, strength)


def match_options(
    network: StyleNetwork,
    method: str = "efdm",
    ties: str | None = None,
    tolerance: float | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Any]:
    """Return the options of a match. The tolerance defaults to that of the network, or to 0 with ``ties``."""
    for name, value in (("ties", ties), ("tolerance", tolerance)):
        if value is not None and method != "efdm":
            raise SettingError(f"{name}={value!r} needs method='efdm', got {method!r}", (name, "method"))
    if method != "efdm":
        return {}
    if tolerance is None:
        tolerance = network.tolerance if ties is None else 0.0
    check_tolerance(tolerance)
    order = {} if ties is None else {"ties": ties, "generator": generator}
    return {**({"tolerance": tolerance} if tolerance else {}), **order}


def run_network(
    network: StyleNetwork,
    content: Tensor,
    match: Callable[[int, Tensor], Tensor],
    tile: str | int = "none",
    strength: float | Tensor = 1.0,
    start: Tensor | None = None,
) -> Tensor:
    """Return the decoded content, with ``match(depth, features)`` applied after every stage.

    Below full strength, the last matched features are blended with the unmatched features of the content. With one stage
    this is the paper's trade-off. With several stages, blending after each would give nearly full style at strength 0.5.
    ``start`` replaces the content in the stages that are matched.
    """
    size = (content.shape[-2], content.shape[-1])
    side = tile_side(tile, size)
    blended = isinstance(strength, Tensor) or strength != 1
    unmatched, x = content, content if start is None else start
    for depth in range(len(network.stages)):
        shared = depth == 0 and start is None
        x = run_stage(network, depth, x, size, side)
        if blended:
            unmatched = x if shared else run_stage(network, depth, unmatched, size, side)
        x = match(depth, x)
    if blended:
        matched = x
        x = map_channels(unmatched, lambda some, channels: blend(some, matched[:, channels], strength))
    return run_stage(network, len(network.stages), x, size, side)


def fade(content: Tensor, output: Tensor, strength: float | Tensor) -> Tensor:
    """Return the output of a network, blended with the content below a strength of `FADE`; strength 0 gives the content."""
    if isinstance(strength, Tensor):
        return torch.lerp(content, output, (strength.to(content) / FADE).clamp(max=1).view(-1, 1, 1, 1))
    return output if strength >= FADE else torch.lerp(content, output, strength / FADE)
