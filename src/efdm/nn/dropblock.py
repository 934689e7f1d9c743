"""DropBlock as a layer: squares of features are left out, and the rest is made stronger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from efdm.nn import draw
from efdm.nn.layer import FeatureLayer
from efdm.ops.layout import check_features

_POOLS: dict[int, Callable[..., Tensor]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def dropped(space: Sequence[int], corners: Tensor, block: Sequence[int]) -> Tensor:
    """Where blocks lie, ``(b, c, *space)``, given where their first corners are: ``(b, c, *(space - block + 1))``."""
    widths = [side - 1 for side in reversed(block) for _ in range(2)]
    covered = _POOLS[len(space)](F.pad(corners.float(), widths), tuple(block), stride=1)
    return covered > 0


class DropBlock(FeatureLayer):
    """DropBlock (Ghiasi et al., NeurIPS 2018): blocks of every channel are 0, the rest is scaled up by as much.

    Blocks begin at random where they fit, so often that a share of about ``p`` is dropped; overlaps make it a little less.
    The scale is that of the whole batch. A feature map smaller than a block loses whole channels. The published schedule,
    from 0 up to ``p`` over the training, is left out: ``p`` is what it is.

    Args:
        p: the share of features to drop. block: the side of a block. The rest as in `FeatureLayer`.

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
        p: float = 0.1,  # their paper: keep_prob 0.9, ResNet-50
        block: int = 7,  # their paper, ResNet-50
        *,
        channel_dim: int | None = None,
        prefix: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(p, channel_dim=channel_dim, prefix=prefix, generator=generator)
        if not isinstance(block, int) or block < 1:
            raise ValueError(f"block={block!r} must be a whole number of positions, at least 1; the paper uses 7")
        self.block = block

    def changed(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        check_features(features, "features", channel_dim)
        x = features.movedim(channel_dim, 1)
        space = x.shape[2:]
        if len(space) not in _POOLS:
            raise ValueError(f"features have shape {tuple(features.shape)}; blocks are cut out of one to three dimensions")
        block = [min(self.block, side) for side in space]
        fits = [side - length + 1 for side, length in zip(space, block, strict=True)]
        chance = self.p * prod(space) / (prod(block) * prod(fits))  # their paper, equation 1
        corners = draw.uniform(*x.shape[:2], *fits, device=x.device, generator=self.generator) < chance
        gone = dropped(space, corners, block)
        scale = gone.numel() / (~gone).sum().clamp(min=1)
        # expanded, so that halves become float32: a scale rounded to bfloat16 would make all features of a call too large,
        # or all too small; filled, since an infinity times 0 is NaN, and in place, which keeps the memory format
        out = (x * scale.expand(x.shape)).masked_fill_(gone, 0.0).to(x.dtype)
        return out.movedim(1, channel_dim)

    def shown(self) -> dict[str, object]:
        return {"p": self.p, "block": self.block}
