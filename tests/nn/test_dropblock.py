from __future__ import annotations

import pytest
import torch

from efdm.nn import DropBlock
from efdm.nn.dropblock import block_mask


def test_a_corner_drops_its_block() -> None:
    corners = torch.zeros(1, 1, 4, 5)
    corners[0, 0, 1, 2] = 1
    expected = torch.zeros(1, 1, 6, 6, dtype=torch.bool)
    expected[0, 0, 1:4, 2:4] = True
    assert torch.equal(block_mask((6, 6), corners, (3, 2)), expected)


@pytest.mark.parametrize(("block", "at_least"), [(1, 0.195), (3, 0.17), (4, 0.17)])
def test_share_of_dropped_features(block: int, at_least: float, device: torch.device) -> None:
    out = DropBlock(0.2, block)(torch.ones(64, 16, 16, 16, device=device))
    share = (out == 0).float().mean().item()
    assert at_least < share < 0.21, "slightly less than p where blocks overlap"


def test_the_rest_is_scaled_up(device: torch.device) -> None:
    x = torch.rand(8, 4, 10, 10, device=device) + 1
    out = DropBlock(0.3, 3)(x)
    kept = out != 0
    torch.testing.assert_close(out[kept], (x * kept.numel() / kept.sum())[kept])
    ones = DropBlock(0.3, 3)(torch.ones_like(x))
    assert ones.mean().item() == pytest.approx(1, abs=1e-5)


def test_bfloat16_is_scaled_in_float32(device: torch.device) -> None:
    """A scale rounded to bfloat16 would bias all features of a call by up to 0.4 %."""
    x = torch.rand(8, 16, 20, 20, device=device).bfloat16() + 1
    torch.manual_seed(0)
    out = DropBlock(0.1, 3)(x)
    torch.manual_seed(0)
    expected = DropBlock(0.1, 3)(x.float())
    assert out.dtype == torch.bfloat16
    assert out.float().mean().item() == pytest.approx(expected.mean().item(), rel=3e-4)


def test_maps_smaller_than_a_block_lose_whole_channels(device: torch.device) -> None:
    out = DropBlock(0.25, 7)(torch.ones(200, 8, 4, 5, device=device))
    zeros = (out == 0).flatten(2)
    assert torch.equal(zeros.all(-1), zeros.any(-1))
    assert 0.2 < zeros.float().mean().item() < 0.3


def test_p_1_drops_everything(device: torch.device) -> None:
    out = DropBlock(1.0, 7)(torch.ones(2, 3, 4, 4, device=device))
    assert torch.equal(out, torch.zeros_like(out))


@pytest.mark.parametrize("space", [(9,), (5, 6), (4, 5, 6)], ids=str)
def test_one_to_three_space_dimensions(space: tuple[int, ...], device: torch.device) -> None:
    out = DropBlock(0.3, 2, channel_dim=1)(torch.ones(8, 6, *space, device=device))
    assert out.shape == (8, 6, *space)
    assert 0.1 < (out == 0).float().mean().item() < 0.35
    with pytest.raises(ValueError, match="1 to 3 space dimensions"):
        DropBlock(0.3)(torch.ones(1, 2, 3, 3, 3, 3))


def test_infinities_are_dropped(device: torch.device) -> None:
    x = torch.full((4, 4, 8, 8), float("inf"), device=device)
    out = DropBlock(0.3, 3)(x)
    assert ((out == 0) | (out == x)).all()
    assert (out == 0).any()
