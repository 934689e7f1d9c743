from __future__ import annotations

import pytest
import torch

from efdm.nn import PAIRINGS
from efdm.nn.pairing import paired


def draw(name: str, batch: int, device: torch.device, domains=None, seed: int = 0) -> torch.Tensor:
    labels = None if domains is None else torch.tensor(domains, device=device)
    return PAIRINGS[name](batch, labels, device, torch.Generator(device).manual_seed(seed))


@pytest.mark.parametrize("batch", [1, 2, 7, 64])
def test_random_is_a_permutation(batch: int, device: torch.device) -> None:
    partner = draw("random", batch, device)
    assert partner.device.type == device.type
    assert partner.sort().values.tolist() == list(range(batch))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "halves"])
def test_shuffled_samples_compile_with_inductor(name: str, device: torch.device) -> None:
    torch._dynamo.reset()
    x = torch.arange(6.0, device=device).view(6, 1).requires_grad_()
    out = torch.compile(lambda x: x[PAIRINGS[name](6, None, x.device, None)], fullgraph=True)(x)
    assert out.flatten().sort().values.tolist() == list(range(6))
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [1] * 6


@pytest.mark.parametrize("domains", [[0, 1], [0, 0, 1], [0, 0, 0, 0, 1], [0, 1, 2, 3] * 8, [5, 9, 5, 7, 7, 9, 9]])
def test_crossdomain_always_crosses(domains: list[int], device: torch.device) -> None:
    labels = torch.tensor(domains, device=device)
    for seed in range(20):
        partner = draw("crossdomain", len(domains), device, domains, seed)
        assert bool((labels[partner] != labels).all())


def test_crossdomain_draws_uniformly(device: torch.device) -> None:
    domains = [0, 1, 1, 2, 2, 2]
    counts = torch.zeros(6)
    for seed in range(3000):
        counts[draw("crossdomain", 6, device, domains, seed)[0]] += 1
    assert counts[0] == 0
    assert counts[1:].min() > 500  # 600 expected, standard deviation 22


@pytest.mark.parametrize("domains", [[3], [2, 2, 2]])
def test_one_domain_pairs_samples_with_themselves(domains: list[int], device: torch.device) -> None:
    assert draw("crossdomain", len(domains), device, domains).tolist() == list(range(len(domains)))


def test_crossdomain_needs_labels(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"model\(images, domains=labels\)"):
        draw("crossdomain", 4, device)
    with pytest.raises(ValueError, match=r"\(4,\).*got \(3,\)"):
        draw("crossdomain", 4, device, [0, 1, 2])


def test_halves_swaps_the_halves(device: torch.device) -> None:
    for seed in range(10):
        partner = draw("halves", 8, device, seed=seed)
        assert partner.sort().values.tolist() == list(range(8))
        assert bool((partner[:4] >= 4).all())
        assert bool((partner[4:] < 4).all())


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_halves_takes_odd_batches(batch: int, device: torch.device) -> None:
    assert draw("halves", batch, device).sort().values.tolist() == list(range(batch))


@pytest.mark.parametrize("name", PAIRINGS)
def test_seeded(name: str, device: torch.device) -> None:
    domains = [0, 1, 2, 0, 1, 2, 0, 1]
    assert torch.equal(draw(name, 8, device, domains, 3), draw(name, 8, device, domains, 3))
    assert any(not torch.equal(draw(name, 8, device, domains, 3), draw(name, 8, device, domains, s)) for s in range(4, 9))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5), (3, 4, 5, 6), (3, 1, 5, 6)], ids=str)
def test_paired_keeps_the_memory_format(shape: tuple[int, ...], device: torch.device) -> None:
    x, partner = torch.randn(shape, device=device), torch.tensor([2, 0, 1], device=device)
    assert torch.equal(paired(x, partner), x[partner])
    if len(shape) == 4:
        last = x.contiguous(memory_format=torch.channels_last)
        assert torch.equal(paired(last, partner), x[partner])
        assert paired(last, partner).is_contiguous(memory_format=torch.channels_last)
