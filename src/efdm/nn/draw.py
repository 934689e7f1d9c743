"""Everything random, drawn on a device from one generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from efdm.kernels import is_eager
from efdm.ops.generator import generator_kwargs

Generator = torch.Generator | None


def uniform(*shape: int, device: torch.device, generator: Generator) -> Tensor:
    return torch.rand(shape, device=device, dtype=torch.float32, **generator_kwargs(generator))


def normal(*shape: int, device: torch.device, generator: Generator) -> Tensor:
    return torch.randn(shape, device=device, dtype=torch.float32, **generator_kwargs(generator))


def integers(below: int, *shape: int, device: torch.device, generator: Generator) -> Tensor:
    """From 0 to ``below - 1``, evenly."""
    return torch.randint(below, shape, device=device, **generator_kwargs(generator))


def permutation(n: int, device: torch.device, generator: Generator) -> Tensor:
    return torch.randperm(n, device=device, **generator_kwargs(generator))


def gate(p: float, device: torch.device, generator: Generator) -> Tensor:
    """True with probability ``p``: whether a call does anything."""
    return uniform(device=device, generator=generator) < p


def closed(gate: Tensor) -> bool:
    """Whether a gate is known to be closed. On a CPU reading it is free and saves the work; a GPU would have to wait."""
    return gate.device.type == "cpu" and is_eager(gate) and not gate


def beta(alpha: float, batch: int, device: torch.device, generator: Generator) -> Tensor:
    """``Beta(alpha, alpha)``, one for each sample."""
    return beta_from(alpha, *beta_noise(batch, device, generator))


_TRIES = 8  # each is taken with a chance of at least 0.95, so that all fail once in 25,000 million draws


def beta_noise(batch: int, device: torch.device, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """All that `beta` takes from the generator. A layer whose gate is closed draws it, too, and leaves the rest."""
    u = uniform(2, batch, device=device, generator=generator)
    x = normal(2, batch, _TRIES, device=device, generator=generator)
    return u, x, uniform(2, batch, _TRIES, device=device, generator=generator)


def beta_from(alpha: float, u: Tensor, x: Tensor, chance: Tensor) -> Tensor:
    # From two gamma variates, in logarithms: log Gamma(a) = log Gamma(a + 1) + log(U) / a, where Gamma(0.1) itself would
    # underflow.
    log = _log_gamma(alpha + 1.0, x, chance) + u.clamp(min=torch.finfo(torch.float32).tiny).log() / alpha
    return torch.sigmoid(log[0] - log[1])


def _log_gamma(shape: float, x: Tensor, u: Tensor) -> Tensor:
    """Logarithms of gamma variates of a shape of at least 1 (Marsaglia and Tsang, ACM TOMS 26, 2000), from normal and
    uniform numbers.

    The first accepted of a fixed number of tries, instead of trying until one is: nothing is read back from a device, and
    compilers see plain arithmetic. torch's own gamma and Dirichlet cannot be traced with changing sizes before torch 2.13.
    """
    d = shape - 1 / 3
    root = 1 + x / (9 * d) ** 0.5
    log = 3 * root.clamp(min=torch.finfo(torch.float32).tiny).log()
    taken = (root > 0) & (u.log() < 0.5 * x.square() + d * (1 - root**3 + log))
    first = taken.to(torch.uint8).argmax(-1, keepdim=True)
    return log.gather(-1, first)[..., 0] + math.log(d)
