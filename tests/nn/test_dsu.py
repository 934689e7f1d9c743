from __future__ import annotations

import torch
from tolerances import close
from torch import Tensor

from efdm.nn import DSU
from efdm.nn.dsu import perturbed


def published(x: Tensor, mean_noise: Tensor, std_noise: Tensor, eps: float = 1e-6) -> Tensor:
    """Compute the published method step by step: normalize, then apply the perturbed statistics."""
    flat = x.flatten(2)
    mean, std = flat.mean(2), (flat.var(2) + eps).sqrt()
    moved_mean = mean + mean_noise * (mean.var(0) + eps).sqrt()
    moved_std = std + std_noise * (std.var(0) + eps).sqrt()
    return ((flat - mean[..., None]) / std[..., None] * moved_std[..., None] + moved_mean[..., None]).view_as(x)


def test_equals_the_published_method(device: torch.device) -> None:
    x = torch.randn(5, 3, 4, 6, device=device, dtype=torch.float64).requires_grad_()
    noise, grad = torch.randn(2, 5, 3, device=device, dtype=torch.float64), torch.randn_like(x)
    ours, theirs = perturbed(x, *noise), published(x, *noise)
    close(ours, theirs)
    close(torch.autograd.grad(ours, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


def test_zero_noise_returns_the_features_exactly(device: torch.device) -> None:
    x = torch.randn(5, 3, 7, device=device).bfloat16()
    assert torch.equal(perturbed(x, torch.zeros(5, 3, device=device), torch.zeros(5, 3, device=device)), x)


def test_distribution_of_the_perturbed_means(device: torch.device) -> None:
    """Over many calls, a sample's mean is unbiased and has the standard deviation of the batch's means."""
    x = torch.randn(4, 2, 50, device=device) + 5 * torch.randn(4, 2, 1, device=device)
    layer = DSU(p=1.0, channel_dim=1)
    outs = torch.stack([layer(x).mean(-1) for _ in range(1500)])
    spread = x.mean(-1).std(0)
    assert ((outs.mean(0) - x.mean(-1)).abs() < 5 * spread / 1500**0.5).all()
    torch.testing.assert_close(outs.std(0), spread.expand(4, 2), rtol=0.1, atol=0)
