"""Agreement with the published computations to a relative 1e-6 in float32, values and gradients."""

from __future__ import annotations

import oracle
import pytest
import torch
from torch import Tensor

from efdm import Partners, adain, efdmix, mixstyle

PARTNERS = {"random": [3, 0, 5, 1, 2, 4], "halves": [4, 3, 5, 1, 0, 2]}


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("index", PARTNERS.values(), ids=PARTNERS)
def test_mixing_within_a_batch(index: list[int], device: torch.device) -> None:
    x, g = (torch.randn(6, 16, 20, 20, device=device) for _ in range(2))
    partner, lam = torch.tensor(index, device=device), torch.rand(6, device=device)
    methods = {
        "efdmix": (
            lambda a: efdmix(a, Partners(partner), lam, style_grad="flow"),
            lambda a: oracle.efdmix(a, partner, lam),
        ),
        "mixstyle": (
            lambda a: mixstyle(a, Partners(partner), lam),
            lambda a: oracle.mixstyle(a, a[partner], lam, 1e-6),
        ),
    }
    for ours, published in methods.values():
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        actual, expected = ours(a), published(b)
        assert relative_error(actual, expected) < 1e-6
        actual.backward(g)
        expected.backward(g)
        assert relative_error(a.grad, b.grad) < 1e-6


def test_adain(device: torch.device) -> None:
    x, y = torch.randn(4, 16, 20, 20, device=device), torch.randn(4, 16, 20, 20, device=device) * 3 + 1
    assert relative_error(adain(x, y), oracle.adain(x, y, 1e-5)) < 1e-6
