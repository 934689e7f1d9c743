"""Features whose channels lie last in memory are mixed as they lie, and come out the same as rows do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels import reference

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# channels and row lengths: one of each, less and more than a group or a square, all of a long row's shared memory
SHAPES = (
    (1, 1),
    (1, 49),
    (3, 7),
    (16, 196),
    (20, 100),
    (70, 65),
    (130, 64),
    (33, 784),
    (24, 3136),
    (9, 5000),
    (5, 12544),
    (6, 16384),
)
WEIGHTS = {
    "some": (0.0, 1.0, 0.25, 0.75, 0.5),
    "all": (0.1, 0.9, 0.3, 0.6, 1.0),
    "none": (0.0,) * 5,
}


def channels_last(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("channels", "n"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_as_of_rows(device: torch.device, dtype: torch.dtype, channels: int, n: int, weights: str) -> None:
    x = torch.randn(5, channels, n, device=device).to(dtype)
    x[:, :, ::3] = x[:, :, ::3].clamp(min=0)  # ties
    x[1, -1, -1] = -0.0
    partner = torch.tensor([4, 3, 0, 0, 1], device=device)
    weight = torch.tensor(WEIGHTS[weights], device=device)
    last = channels_last(x)
    mixed = kernels.mix_partners(last, partner, weight)
    assert mixed.stride() == last.stride()
    assert torch.equal(mixed, kernels.mix_partners(x, partner, weight))
    expected = reference.mix_partners(x, partner, weight)
    torch.testing.assert_close(mixed, expected, rtol=1.6e-2 if dtype == torch.bfloat16 else 1.3e-3, atol=1e-5)


def test_weights_for_all_at_once_and_other_strides(device: torch.device) -> None:
    """Neither one weight that stands for all nor a cut-out of a larger tensor is contiguous."""
    large = torch.randn(4, 12, 10, 30, device=device)
    x = large[:, 2:9, :, ::2].permute(0, 2, 3, 1).flatten(1, 2).mT  # (4, 7, 150)
    partner, weight = torch.tensor([1, 0, 3, 2], device=device), torch.tensor([0.5], device=device).expand(4)
    torch.testing.assert_close(
        kernels.mix_partners(x, partner, weight), reference.mix_partners(x, partner, weight), rtol=1e-5, atol=1e-6
    )
    cut = large[:, 2:9].flatten(2)
    torch.testing.assert_close(
        kernels.mix_partners(cut, partner, weight), reference.mix_partners(cut, partner, weight), rtol=1e-5, atol=1e-6
    )


def test_memory_that_is_kept_serves_other_shapes_and_modes() -> None:
    """First made in inference mode for one shape, then used in training for a larger one, a smaller one, and the first."""
    partner, weight = torch.tensor([1, 0]), torch.tensor([0.25, 1.0])
    kept = []
    for n, mode in ((40, True), (60, False), (20, False), (40, False)):
        x = channels_last(torch.randn(2, 5, n))
        with torch.inference_mode(mode):
            kept.append((kernels.mix_partners(x, partner, weight), reference.mix_partners(x, partner, weight)))
    for mixed, expected in kept:  # at the end: a later call must not have changed what an earlier one gave
        torch.testing.assert_close(mixed, expected, rtol=1e-5, atol=1e-6)
