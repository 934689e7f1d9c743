import pytest
import torch
from tolerances import close
from torch import Tensor

from efdm.dg.batch import CutMix, Cutout, Mixup
from efdm.nn import draw
from efdm.recognition.methods import unchanged
from efdm.recognition.pixels import rectangles

CHANGES = {"mixup": Mixup, "cutmix": CutMix, "cutout": Cutout}


def batch(device: torch.device, size: int = 5) -> tuple[Tensor, Tensor]:
    """Return pictures with the constant value i + 1 and one-hot targets i, so that every pixel shows its origin."""
    images = torch.arange(1.0, size + 1, device=device)[:, None, None, None].expand(size, 3, 8, 10)
    return images.contiguous(memory_format=torch.channels_last), torch.eye(size, device=device)


def seeded(change: type, device: torch.device, seed: int = 0, **settings: float):
    return change(**settings, generator=torch.Generator(device).manual_seed(seed))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_shape_layout_and_probabilities(change: type, device: torch.device) -> None:
    images, targets = batch(device)
    kept = images.clone(), targets.clone()
    for seed in range(10):
        new, probabilities = seeded(change, device, seed)(images, targets)
        assert new.shape == images.shape
        assert new.dtype == images.dtype
        assert new.is_contiguous(memory_format=torch.channels_last)
        close(probabilities.sum(1), torch.ones(5, device=device))
        assert (probabilities >= 0).all()
    assert torch.equal(images, kept[0]), "the input is unchanged"
    assert torch.equal(targets, kept[1])


@pytest.mark.parametrize("gate", ["read", "not read"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_probability_of_a_change(change: type, gate: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if gate == "not read":  # as on a GPU
        monkeypatch.setattr(draw, "closed", lambda gate: False)
    images, targets = batch(device)
    new, probabilities = change(p=0.0)(images, targets)
    assert torch.equal(new, images)
    assert torch.equal(probabilities, targets)
    half = seeded(change, device, p=0.5)
    changed = sum(not torch.equal(half(images, targets)[0], images) for _ in range(100))
    assert 25 < changed < 70


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("size", [1, 2])
def test_small_batches(change: type, size: int, device: torch.device) -> None:
    images, targets = change()(*batch(device, size))
    assert images.isfinite().all()
    if size == 1:
        assert torch.equal(targets, torch.ones(1, 1, device=device))


def test_mixup_is_linear(device: torch.device) -> None:
    """Pictures and targets are blended with the same weight."""
    images, targets = batch(device)
    for seed in range(5):
        new, probabilities = seeded(Mixup, device, seed, alpha=1.0)(images, targets)
        close(new[:, 0, 0, 0], probabilities @ torch.arange(1.0, 6, device=device))
        assert torch.equal(new, new[:, :1, :1, :1].expand_as(new))


def test_mixup_draws_one_weight_from_beta(device: torch.device) -> None:
    change = seeded(Mixup, device, alpha=5.0)
    images, targets = torch.zeros(2, 1, 1, 1, device=device), torch.eye(2, device=device)
    kept = torch.stack([change(images, targets)[1][:, 0] for _ in range(600)])
    mixed = kept[(kept < 1).all(1) & (kept > 0).all(1)]
    assert 230 < len(mixed) < 370, "half of the permutations of two change nothing"
    close(mixed.sum(1), torch.ones(len(mixed), device=device))
    assert mixed[:, 0].var().item() == pytest.approx(1 / 44, rel=0.3)  # Beta(5, 5)


def test_cutmix_targets_follow_pixels(device: torch.device) -> None:
    images, targets = batch(device)
    shares = set()
    for seed in range(20):
        new, probabilities = seeded(CutMix, device, seed)(images, targets)
        for i in range(5):
            assert set(new[i].unique().tolist()) <= set(range(1, 6)), "pixels are copied"
            for j in range(5):
                pixels = (new[i, 0] == j + 1).sum() / 80
                close(probabilities[i, j], pixels)
        shares |= set(probabilities.unique().tolist())
    assert len(shares) > 10


def test_cutmix_area(device: torch.device) -> None:
    """With alpha = 1 areas are uniform, half on average, and reduced by clipping."""
    change = seeded(CutMix, device)
    images, targets = torch.zeros(2, 1, 32, 32, device=device), torch.eye(2, device=device)
    kept = torch.stack([change(images, targets)[1].max() for _ in range(400)])
    assert 0.6 < kept[kept < 1].mean().item() < 0.8


def test_cutout(device: torch.device) -> None:
    images, targets = torch.ones(200, 3, 12, 16, device=device), torch.eye(200, device=device)
    new, probabilities = seeded(Cutout, device)(images, targets)
    assert torch.equal(probabilities, targets)
    out = new[:, 0] == 0
    assert torch.equal(new == 0, out[:, None].expand_as(new)), "all channels"
    areas = out.sum((1, 2))
    assert areas.max().item() == 36, "half of the shorter side, squared"
    assert areas.min().item() < 20, "clipped at the border"
    assert len({tuple(place) for place in out.int().argmax(2).tolist()}) > 50, "positions differ"
    for picture in out[:20]:
        rows, columns = picture.any(1), picture.any(0)
        assert torch.equal(picture, rows[:, None] & columns[None]), "a rectangle"


def test_rectangles() -> None:
    y, x = torch.tensor([2, 0]), torch.tensor([3, 4])
    inside = rectangles((5, 6), (y, x), (torch.tensor([3, 3]), torch.tensor([2, 4])))
    expected = torch.zeros(2, 5, 6, dtype=torch.bool)
    expected[0, 1:4, 2:4] = True
    expected[1, 0:2, 2:6] = True
    assert torch.equal(inside, expected)


def test_wrong_arguments_of_batch_changes(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"p must be .* got -1"):
        Mixup(p=-1)
    with pytest.raises(ValueError, match=r"alpha must be .* got 0"):
        CutMix(alpha=0)
    with pytest.raises(ValueError, match=r"side must be in \(0, 1\], got 2"):
        Cutout(side=2)
    images = batch(device)[0]
    for targets in (torch.arange(5), torch.eye(4), torch.eye(5).long()):
        for change in CHANGES.values():
            with pytest.raises(ValueError, match=r"probabilities of shape \(5, classes\)"):
                change()(images, targets)
    for change in CHANGES.values():
        with pytest.raises(ValueError, match=r"floating point, got torch.uint8"):
            change()(images.byte(), torch.eye(5))
    assert unchanged(images, images) == (images, images)
