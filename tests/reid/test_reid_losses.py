import pytest
import torch

from efdm.reid.losses import batch_hard_triplet


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_uses_the_hardest_pairs(seed: int, device: torch.device) -> None:
    """The loss equals its definition, written as a loop over the batch, even far from the origin."""
    generator = torch.Generator().manual_seed(seed)
    features, people = 100 + torch.randn(12, 5, generator=generator), torch.randint(4, (12,), generator=generator)
    expected = []
    for feature, person in zip(features, people, strict=True):
        distances = (features - feature).norm(dim=1)
        expected.append((0.3 + distances[people == person].max() - distances[people != person].min()).clamp(min=0))
    found = batch_hard_triplet(features.to(device), people.to(device), 0.3)
    torch.testing.assert_close(found.cpu(), torch.stack(expected).mean())


def test_separated_people_have_no_loss_and_equal_features_the_margin() -> None:
    people = torch.arange(3).repeat(4)
    assert batch_hard_triplet(torch.eye(3)[people], people, 0.3) == 0
    assert batch_hard_triplet(torch.ones(12, 3), people, 0.3) == pytest.approx(0.3)
    assert batch_hard_triplet(torch.randn(12, 3), torch.zeros(12), 0.3) == 0, "one person"


@pytest.mark.parametrize("people", [torch.arange(2).repeat(3), torch.zeros(6)], ids=["two people", "one person"])
def test_gradients_are_finite_for_equal_features(people: torch.Tensor) -> None:
    """Pictures of people with few of them are repeated in a batch."""
    features = torch.ones(6, 4, requires_grad=True)
    batch_hard_triplet(features, people).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    other = torch.randn(6, 4).requires_grad_()
    batch_hard_triplet(other, torch.arange(2).repeat(3)).backward()
    assert other.grad is not None
    assert other.grad.norm() > 0
