"""Noise on whole distributions: the formula, its gradient and the statistics of the noise."""

from __future__ import annotations

import pytest
import torch
from tolerances import DTYPES, close
from torch import Tensor

from efdm import distribution_noise


def formula(x: Tensor, weights: Tensor) -> Tensor:
    """Noise in plain torch, which differentiates the sort and the mean."""
    values, order = x.flatten(2).sort(dim=-1, stable=True)
    deviations = values - values.mean(0)
    noise = torch.einsum("cba,acn->bcn", weights.expand(x.shape[1], -1, -1).to(x.dtype), deviations)
    return torch.zeros_like(values).scatter(-1, order, values + noise).view_as(x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5)], ids=["joint", "channels"])
def test_formula_and_its_gradient(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    x, grad = (torch.randn(5, 3, 4, 9).to(device, dtype) for _ in range(2))
    weights = torch.randn(shape).to(device) / 2
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    ours, expected = distribution_noise(a, weights), formula(b, weights)
    close(ours, expected)
    close(torch.autograd.grad(ours, a, grad)[0], torch.autograd.grad(expected, b, grad.double())[0])


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 4)], ids=["joint", "channels"])
def test_gradient_by_finite_differences(shape: tuple[int, ...]) -> None:
    x, weights = torch.randn(4, 2, 6, dtype=torch.float64, requires_grad=True), torch.randn(shape, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a: distribution_noise(a, weights), x)
    assert torch.autograd.gradgradcheck(lambda a: distribution_noise(a, weights) ** 3, x)


def test_stopped_gradient_is_that_of_the_identity(device: torch.device) -> None:
    x, grad = torch.randn(5, 3, 7, device=device, requires_grad=True), torch.randn(5, 3, 7, device=device)
    weights = torch.randn(5, 5, device=device)
    out = distribution_noise(x, weights, style_grad="stop")
    close(out, distribution_noise(x, weights))
    assert torch.equal(torch.autograd.grad(out, x, grad)[0], grad)


def test_noise_has_mean_zero_and_the_covariance_of_the_batch() -> None:
    """Over many draws, one in each channel: unbiased, the batch's covariance over ranks, independent between samples."""
    batch, draws, n = 5, 6000, 4
    values = (torch.randn(batch, 1, n) + torch.randn(batch, 1, 1)).sort(-1).values
    x = values.expand(-1, draws, -1)
    noise = distribution_noise(x, torch.randn(draws, batch, batch) / (batch - 1) ** 0.5) - x
    found = torch.cov(noise.transpose(0, 1).flatten(1).T).view(batch, n, batch, n)
    expected = torch.cov(values[:, 0].T)
    scale = expected.diag().sqrt()
    assert (noise.mean(1).abs() < 5 * scale / draws**0.5).all()
    for a in range(batch):
        for b in range(batch):
            wanted = expected if a == b else torch.zeros_like(expected)
            assert ((found[a, :, b] - wanted).abs() < 0.1 * scale[:, None] * scale).all()


def test_positions_of_a_sample_and_samples_of_a_batch_may_be_permuted(device: torch.device) -> None:
    x, weights = torch.randn(5, 3, 20, device=device), torch.randn(5, 5, device=device)
    out = distribution_noise(x, weights)
    places = torch.stack([torch.randperm(20, device=device) for _ in range(15)]).view(5, 3, 20)
    close(distribution_noise(x.gather(-1, places), weights), out.gather(-1, places))
    samples = torch.randperm(5, device=device)
    close(distribution_noise(x[samples], weights[samples][:, samples]), out[samples])


def test_no_noise(device: torch.device) -> None:
    x = torch.randn(5, 3, 20, device=device)
    x[1, 2, 3] = torch.inf
    assert torch.equal(distribution_noise(x, torch.zeros(5, 5, device=device)), x)
    one = torch.randn(1, 3, 20, device=device)
    assert torch.equal(distribution_noise(one, torch.ones(1, 1, device=device)), one)
    same = one.expand(5, -1, -1)  # equal distributions do not deviate
    close(distribution_noise(same, torch.randn(5, 5, device=device)), same)


def test_autocast_does_not_round_float32_features(device: torch.device) -> None:
    x, weights = torch.randn(5, 3, 20, device=device), torch.randn(5, 5, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        out = distribution_noise(x, weights)
    assert torch.equal(out, distribution_noise(x, weights))


def test_transforms() -> None:
    x, weights = torch.randn(2, 4, 3, 5, dtype=torch.float64), torch.randn(4, 4)

    def loss(function, x: Tensor) -> Tensor:
        return (function(x, weights) ** 3).sum()

    ours, expected = (torch.vmap(torch.func.grad(lambda x, f=f: loss(f, x)))(x) for f in (distribution_noise, formula))
    close(ours, expected)


@pytest.mark.parametrize("weights", [[[1.0]], torch.ones(4, 4), torch.ones(5), torch.ones(2, 5, 5)])
def test_wrong_weights(weights: object) -> None:
    with pytest.raises(ValueError, match=r"\(5, 5\) or \(3, 5, 5\), got"):
        distribution_noise(torch.randn(5, 3, 7), weights)
