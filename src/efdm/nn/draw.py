"""Random draws of the layers, on the features' device and from one generator."""

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
    """Draw integers uniformly from 0 to ``below - 1``."""
    return torch.randint(below, shape, device=device, **generator_kwargs(generator))


def permutation(n: int, device: torch.device, generator: Generator) -> Tensor:
    # int32 has the same values; for x[randperm] of int64 torch's Inductor fails (pytorch issue 158457)
    dtype = torch.int32 if torch.compiler.is_compiling() else torch.int64
    return torch.randperm(n, dtype=dtype, device=device, **generator_kwargs(generator)).long()


def gate(p: float, device: torch.device, generator: Generator) -> Tensor:
    """Return True with probability ``p``, as a tensor. A layer acts if its gate is True."""
    return uniform(device=device, generator=generator) < p


def closed(gate: Tensor) -> bool:
    """Return True if a gate can be read without waiting (CPU, eager) and is closed, so that the work can be skipped."""
    return gate.device.type == "cpu" and is_eager(gate) and not gate


def beta(alpha: float, batch: int, device: torch.device, generator: Generator) -> Tensor:
    """Draw one value per sample from ``Beta(alpha, alpha)``."""
    return beta_from(alpha, *beta_noise(batch, device, generator))


_TRIES = 8  # each proposal is accepted with probability >= 0.95, so all are rejected once in 2.5e10 draws


def beta_noise(batch: int, device: torch.device, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw all random numbers of `beta`.

    Layers also draw them when their gate is closed, so that every call consumes the same random numbers.
    """
    u = uniform(2, batch, device=device, generator=generator)
    x = normal(2, batch, _TRIES, device=device, generator=generator)
    return u, x, uniform(2, batch, _TRIES, device=device, generator=generator)


def beta_from(alpha: float, u: Tensor, x: Tensor, chance: Tensor) -> Tensor:
    # two gamma variates in logarithms, log Gamma(a) = log Gamma(a + 1) + log(U) / a, because Gamma(0.1) would underflow
    log = _log_gamma(alpha, x, chance) + u.clamp(min=torch.finfo(torch.float32).tiny).log() / alpha
    return torch.sigmoid(log[0] - log[1])


def _log_gamma(alpha: float, x: Tensor, u: Tensor) -> Tensor:
    """Compute logarithms of gamma variates of shape ``alpha + 1`` from normal ``x`` and uniform ``u``.

    Marsaglia and Tsang, ACM TOMS 26, 2000, with a fixed number of proposals in place of a rejection loop: nothing is read
    back from the device, and compilers can trace the arithmetic. Before torch 2.13, torch's own gamma and Dirichlet cannot
    be traced with dynamic sizes.
    """
    d = alpha + 2 / 3  # one addition, because a guard of torch.compile may reorder several, which changes the rounding
    root = 1 + x / (9 * d) ** 0.5
    log = 3 * root.clamp(min=torch.finfo(torch.float32).tiny).log()
    taken = (root > 0) & (u.log() < 0.5 * x.square() + d * (1 - root**3 + log))
    first = taken.to(torch.uint8).argmax(-1, keepdim=True)
    return log.gather(-1, first)[..., 0] + math.log(d)
