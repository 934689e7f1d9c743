from __future__ import annotations

import pytest
import torch

from efdm import DistributionNoise
from efdm.ops.joint import fixed_rotations


@pytest.mark.parametrize(("draws", "strength"), [("joint", 1.0), ("joint", 0.5), ("channels", 1.0)])
def test_statistics_of_the_noise(draws: str, strength: float) -> None:
    """The means of channels move as in DSU, by the spread of the batch; together only if drawn jointly."""
    x = torch.randn(4, 1, 50) + 5 * torch.randn(4, 1, 1)
    x = torch.cat([x, -x], 1)  # the second channel moves opposite to the first
    layer = DistributionNoise(p=1.0, strength=strength, draws=draws, channel_dim=1)
    moved = torch.stack([layer(x).mean(-1) - x.mean(-1) for _ in range(1000)])
    spread = x.mean(-1).std(0)
    torch.testing.assert_close(moved.std(0), strength * spread.expand(4, 2), rtol=0.12, atol=0)
    together = (moved[..., 0] * moved[..., 1]).mean() / spread.prod()
    torch.testing.assert_close(together.item(), -(strength**2) if draws == "joint" else 0.0, rtol=0.1, atol=0.05)


def test_rotated_axes() -> None:
    """The noise is that of the rotated features, rotated back."""
    x, generator = torch.randn(6, 4, 5, 3, dtype=torch.float64), torch.Generator()
    turn = fixed_rotations(4, 1, x.device, x.dtype)[0]
    plain, rotated = (DistributionNoise(1.0, axes=axes, generator=generator) for axes in ("channels", "rotated"))
    generator.manual_seed(3)
    out = rotated(x)
    generator.manual_seed(3)
    expected = plain(torch.einsum("dc,bchw->bdhw", turn, x))
    torch.testing.assert_close(torch.einsum("dc,bchw->bdhw", turn, out), expected)
