"""Channels-last features and gradients are mixed without copying and give the same bits as contiguous ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels import reference

# (channels, row length): a single value, sizes below and above a group and a transposed square, all of the shared memory
SHAPES = ((1, 1), (1, 49), (3, 7), (20, 100), (70, 65), (130, 64), (33, 784), (9, 5000), (6, 16384))
SOME, ALL, NONE = (0.0, 1.0, 0.25, 0.75, 0.5), (0.1, 0.9, 0.3, 0.6, 1.0), (0.0,) * 5


def channels_last(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


def check_mix(device: torch.device, channels: int, n: int, weights: tuple[float, ...], dtype: torch.dtype) -> None:
    x = torch.randn(5, channels, n, device=device).to(dtype)
    x[:, :, ::3] = x[:, :, ::3].clamp(min=0)  # ties
    x[1, -1, -1] = -0.0
    partner, weight = torch.tensor([4, 3, 0, 0, 1], device=device), torch.tensor(weights, device=device)
    last = channels_last(x)
    mixed = kernels.mix_partners(last, partner, weight)
    assert mixed.stride() == last.stride()
    assert torch.equal(mixed, kernels.mix_partners(x, partner, weight))
    expected = reference.mix_partners(x, partner, weight)
    tolerance = {"rtol": 1.6e-2 if dtype == torch.bfloat16 else 1.3e-3, "atol": 1e-5}
    torch.testing.assert_close(mixed, expected, **tolerance)

    order = kernels.mix_order(last, partner, weight)[1]
    assert torch.equal(order, kernels.mix_order(x, partner, weight)[1]) or not any(weights)
    grad = torch.randn(x.shape, device=device).to(dtype)
    given = kernels.mix_backward(channels_last(grad), order, partner, weight)
    assert given.stride() == last.stride()
    assert torch.equal(given, kernels.mix_backward(grad, order, partner, weight))
    torch.testing.assert_close(given, reference.mix_backward(grad, order, partner, weight), **tolerance)

    matrix = weight[:, None] * torch.randn(5, 5, device=device)
    moved, order = kernels.combine_order(last, matrix)
    assert moved.stride() == last.stride()
    assert torch.equal(moved, kernels.combine_order(x, matrix)[0])
    given = kernels.combine_backward(channels_last(grad), order, matrix)
    assert given.stride() == last.stride()
    assert torch.equal(given, kernels.combine_backward(grad, order, matrix))


@pytest.mark.parametrize(("channels", "n"), SHAPES)
def test_same_bits_as_contiguous_features(device: torch.device, channels: int, n: int) -> None:
    check_mix(device, channels, n, SOME, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtypes_and_weights(device: torch.device, dtype: torch.dtype) -> None:
    for weights in (SOME, ALL, NONE):
        check_mix(device, 20, 100, weights, dtype)
    check_mix(device, 24, 3136, SOME, dtype)


def test_expanded_weights_and_sliced_features(device: torch.device) -> None:
    large = torch.randn(4, 12, 10, 30, device=device)
    partner, weight = torch.tensor([1, 0, 3, 2], device=device), torch.tensor([0.5], device=device).expand(4)
    for x in (large[:, 2:9, :, ::2].permute(0, 2, 3, 1).flatten(1, 2).mT, large[:, 2:9].flatten(2)):
        expected = reference.mix_partners(x, partner, weight)
        torch.testing.assert_close(kernels.mix_partners(x, partner, weight), expected, rtol=1e-5, atol=1e-6)


def test_scratch_memory_is_reused_for_other_shapes_and_modes() -> None:
    partner, weight = torch.tensor([1, 0]), torch.tensor([0.25, 1.0])
    results = []
    for n, mode in ((40, True), (60, False), (20, False), (40, False)):
        x = channels_last(torch.randn(2, 5, n))
        with torch.inference_mode(mode):
            results.append((kernels.mix_partners(x, partner, weight), reference.mix_partners(x, partner, weight)))
    for mixed, expected in results:  # compared at the end: a later call must not overwrite an earlier result
        torch.testing.assert_close(mixed, expected, rtol=1e-5, atol=1e-6)
