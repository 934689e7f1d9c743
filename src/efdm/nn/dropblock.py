"""DropBlock as a layer: set square blocks of features to zero and rescale the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from efdm.nn import draw
from efdm.nn.layer import FeatureLayer

_POOLS: dict[int, Callable[..., Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def block_mask(space: Sequence[int], corners: Tensor, block: Sequence[int]) -> Tensor:
    """Return the mask ``(b, c, *space)`` of blocks, given their first corners ``(b, c, *(space - block + 1))``."""
    widths = [side - 1 for side in reversed(block) for _ in range(2)]
    covered = _POOLS[len(space)](F.pad(corners.float(), widths), tuple(block), stride=1)
    return covered > 0


class DropBlock(FeatureLayer):
    """DropBlock (Ghiasi et al., NeurIPS 2018): set blocks of every channel to 0 and scale up the rest.

    Blocks are drawn so that about a fraction ``p`` is dropped, slightly less where blocks overlap. One scale is
    computed for the whole batch. In feature maps smaller than a block, whole channels are dropped. The published schedule,
    which raises ``p`` from 0 during training, is not implemented.

    Args:
        p: share of the features to drop.
        block: side of a block.
        settings: ``channel_dim``, ``prefix`` and ``generator`` of `FeatureLayer`.

    >>> import torch
    >>> from efdm.nn import DropBlock
    >>> layer = DropBlock(p=0.2, block=3)
    >>> layer
    DropBlock(p=0.2, block=3)
    >>> layer(torch.rand(8, 16, 14, 14)).shape
    torch.Size([8, 16, 14, 14])
    """

    def __init__(
        self,
        p: float = 0.1,  # DropBlock paper, ResNet-50: keep_prob 0.9
        block: int = 7,  # DropBlock paper, ResNet-50
        **settings: Any,
    ) -> None:
        super().__init__(p, **settings)
        if not isinstance(block, int) or block < 1:
            raise ValueError(f"block must be an integer >= 1, got {block!r}; the paper uses 7")
        self.block = block

    def check(self, features: Tensor, channel_dim: int) -> None:
        super().check(features, channel_dim)
        if features.ndim - 2 not in _POOLS:
            raise ValueError(f"DropBlock takes features with 1 to 3 space dimensions, got shape {tuple(features.shape)}")

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        x = features.movedim(channel_dim, 1)
        space = x.shape[2:]
        block = [min(self.block, side) for side in space]
        fits = [side - length + 1 for side, length in zip(space, block, strict=True)]
        chance = self.p * prod(space) / (prod(block) * prod(fits))  # DropBlock paper, equation 1
        corners = draw.uniform(*x.shape[:2], *fits, device=x.device, generator=self.generator) < chance
        gone = block_mask(space, corners, block)
        scale = gone.numel() / (~gone).sum().clamp(min=1)
        # expanded, so that half types are promoted to float32: a scale rounded to bfloat16 would bias the whole batch;
        # filled, because infinity times 0 is NaN; in place, because that preserves the memory format
        out = (x * scale.expand(x.shape)).masked_fill_(gone, 0.0).to(x.dtype)
        return out.movedim(1, channel_dim)

    def settings(self) -> dict[str, object]:
        return {"p": self.p, "block": self.block}
