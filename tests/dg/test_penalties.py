from itertools import combinations

import pytest
import torch
from torch import Tensor

from efdm.dg.methods import METHODS
from efdm.dg.penalties import Coral, coral_distance
from efdm.errors import SettingError


def reference(features: Tensor, domains: Tensor) -> Tensor:
    """The definition, domain by domain."""
    groups = [features[domains == d] for d in domains.unique()]
    found = [
        (a.mean(0) - b.mean(0)).square().mean() + (torch.cov(a.T) - torch.cov(b.T)).square().mean()
        for a, b in combinations(groups, 2)
    ]
    return torch.stack(found).mean()


@pytest.mark.parametrize("domains", [[0, 1] * 6, [3, 3, 3, 0, 0, 7, 7, 7, 7, 0, 3, 7], [1] * 10 + [2, 2]])
def test_coral_equals_the_reference_with_its_gradient(domains: list[int], device: torch.device) -> None:
    labels = torch.tensor(domains, device=device)
    x = (torch.randn(12, 5, generator=torch.Generator().manual_seed(0)).to(device) + labels[:, None]).requires_grad_()
    found, expected = coral_distance(x, labels), reference(x.double(), labels)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    ours, theirs = (torch.autograd.grad(value, x)[0] for value in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_coral_is_zero_for_equal_domains_and_for_a_single_domain() -> None:
    x = torch.randn(6, 4)
    assert coral_distance(torch.cat([x, x]), torch.arange(12) // 6) == pytest.approx(0, abs=1e-12)
    assert coral_distance(x, torch.zeros(6, dtype=torch.int64)) == pytest.approx(0, abs=1e-12)


def test_coral_does_not_depend_on_autocast() -> None:
    x, domains = torch.randn(8, 4), torch.arange(8) % 2
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(coral_distance(x, domains), (expected := coral_distance(x, domains)))
    assert torch.equal(coral_distance(x, domains), expected)


def test_gamma_is_the_weight_and_an_option() -> None:
    x, domains = torch.randn(8, 4), torch.arange(8) % 2
    penalty = METHODS["coral"].make(1, None, gamma=3.0).penalty
    torch.testing.assert_close(penalty(x, x, x, domains), 3 * coral_distance(x, domains))
    with pytest.raises(SettingError, match="gamma") as error:
        Coral(gamma=-1.0)
    assert error.value.settings == ("gamma",)
