"""Everything random, drawn on a device from one generator."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm.ops.generator import given

Generator = torch.Generator | None


def uniform(*shape: int, device: torch.device, generator: Generator) -> Tensor:
    return torch.rand(shape, device=device, dtype=torch.float32, **given(generator))


def permutation(n: int, device: torch.device, generator: Generator) -> Tensor:
    return torch.randperm(n, device=device, **given(generator))


def beta(alpha: float, batch: int, device: torch.device, generator: Generator) -> Tensor:
    """``Beta(alpha, alpha)``, one for each sample."""
    # From two gamma variates, in logarithms: log Gamma(a) = log Gamma(a + 1) + log(U) / a, where Gamma(0.1) itself would
    # underflow. Not torch's Dirichlet, which takes no generator in public and cannot be traced with changing sizes.
    shape = torch.full((2, batch), alpha + 1.0, device=device, dtype=torch.float32)
    u = uniform(2, batch, device=device, generator=generator).clamp(min=torch.finfo(torch.float32).tiny)
    log = torch._standard_gamma(shape, **given(generator)).log() + u.log() / alpha
    return torch.sigmoid(log[0] - log[1])
