from __future__ import annotations

import torch
from tolerances import close
from torch import Tensor

from efdm.nn import DSU
from efdm.nn.dsu import perturbed


def published(x: Tensor, mean_noise: Tensor, std_noise: Tensor, eps: float = 1e-6) -> Tensor:
    """The method step by step: normalise, then put on statistics that were moved."""
    flat = x.flatten(2)
    mean, std = flat.mean(2), (flat.var(2) + eps).sqrt()
    moved_mean = mean + mean_noise * (mean.var(0) + eps).sqrt()
    moved_std = std + std_noise * (std.var(0) + eps).sqrt()
    return ((flat - mean[..., None]) / std[..., None] * moved_std[..., None] + moved_mean[..., None]).view_as(x)


def test_is_the_published_method(device: torch.device) -> None:
    x = torch.randn(5, 3, 4, 6, device=device, dtype=torch.float64).requires_grad_()
    noise, grad = torch.randn(2, 5, 3, device=device, dtype=torch.float64), torch.randn_like(x)
    ours, theirs = perturbed(x, *noise), published(x, *noise)
    close(ours, theirs)
    # nothing is detached
    close(torch.autograd.grad(ours, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


def test_noise_of_0_gives_the_features_exactly(device: torch.device) -> None:
    x = torch.randn(5, 3, 7, device=device).bfloat16()
    assert torch.equal(perturbed(x, torch.zeros(5, 3, device=device), torch.zeros(5, 3, device=device)), x)


def test_statistics_spread_around_those_of_the_samples(device: torch.device) -> None:
    """Over many calls, a sample's mean has its own mean, and the standard deviation that the batch's means have."""
    x = torch.randn(4, 2, 50, device=device) + 5 * torch.randn(4, 2, 1, device=device)
    layer = DSU(p=1.0)
    outs = torch.stack([layer(x).mean(-1) for _ in range(1500)])
    spread = x.mean(-1).std(0)
    assert ((outs.mean(0) - x.mean(-1)).abs() < 5 * spread / 1500**0.5).all()
    torch.testing.assert_close(outs.std(0), spread.expand(4, 2), rtol=0.1, atol=0)


def test_a_sample_alone_has_no_spread(device: torch.device) -> None:
    x = torch.randn(1, 3, 7, device=device)
    assert torch.equal(DSU(p=1.0)(x), x)
