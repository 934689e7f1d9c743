from __future__ import annotations

import copy

import pytest
import torch
from tolerances import close
from torch import Tensor, nn

from efdm import active, mix_after, set_active
from efdm.nn import ManifoldMixup, draw


class TwoStages(nn.Module):
    """Two identity stages that return their input and both mixed outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> list[Tensor]:
        first = self.one(x)
        return [x, first, self.two(first)]


def batch(device: torch.device, size: int = 5) -> tuple[Tensor, Tensor]:
    """Return one-hot targets and images that repeat them, so that mixing must change both alike."""
    targets = torch.eye(size, device=device)
    return targets[:, :, None, None].expand(size, size, 2, 3).contiguous(), targets


def mixed(device: torch.device, seed: int, **settings: float) -> tuple[list[Tensor], Tensor]:
    mixup = ManifoldMixup(2, generator=torch.Generator(device).manual_seed(seed), **settings)
    model = mix_after(TwoStages(), ["one", "two"], mixup.layers)
    images, targets = mixup(*batch(device))
    return model(images), targets


@pytest.mark.parametrize("gate", ["read", "not read"])
def test_features_and_targets_have_the_same_partner_and_weight(
    gate: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gate == "not read":  # as on a GPU
        monkeypatch.setattr(draw, "closed", lambda gate: False)
    depths = set()
    for seed in range(20):
        seen, targets = mixed(device, seed)
        plain = batch(device)[0]
        depth = next((i for i, x in enumerate(seen) if not torch.equal(x, plain)), None)
        if depth is None:  # the permutation is the identity
            continue
        depths.add(depth)
        expected = targets[:, :, None, None].expand_as(plain)
        for x in seen[depth:]:
            assert torch.equal(x, expected), "mixed once, and like the targets"
    assert depths == {0, 1, 2}, "the images and both stages"


def test_class_tokens_are_mixed(device: torch.device) -> None:
    mixup = ManifoldMixup(1, generator=torch.Generator(device).manual_seed(1))
    tokens = torch.eye(5, device=device)[:, None].expand(5, 4, 5)
    for _ in range(6):
        images, targets = mixup(tokens, torch.eye(5, device=device))
        assert torch.equal(mixup.layers[0](images, layout=(-1, 1)), targets[:, None].expand(5, 4, 5))


def test_targets_stay_probabilities(device: torch.device) -> None:
    for seed in range(5):
        _, targets = mixed(device, seed)
        close(targets.sum(1), torch.ones(5, device=device))
        assert (targets >= 0).all()


def test_one_weight_for_a_batch(device: torch.device) -> None:
    targets = next(t for t in (mixed(device, seed)[1] for seed in range(9)) if (t.max(1).values < 1).all())
    assert len(set(targets.max(1).values.tolist())) == 1


def test_p_0_mixes_nothing(device: torch.device) -> None:
    images, targets = batch(device)
    seen, out = mixed(device, 3, p=0.0)
    assert torch.equal(out, targets)
    assert all(torch.equal(x, images) for x in seen)


def test_features_without_a_draw_raise(device: torch.device) -> None:
    mixup = ManifoldMixup(2)
    model = mix_after(TwoStages(), ["one", "two"], mixup.layers)
    with pytest.raises(RuntimeError, match="no batch yet"):
        model(batch(device)[0])
    mixup(*batch(device))
    with pytest.raises(RuntimeError, match="batch of 5, but got features of 3"):
        model(batch(device, 3)[0])
    with active(model, False):
        model(batch(device, 3)[0])


def test_keeps_channels_last_and_a_copied_model_works(device: torch.device) -> None:
    mixup = ManifoldMixup(1, generator=torch.Generator(device))
    model = mix_after(nn.Sequential(nn.Conv2d(3, 4, 3)).to(device), ["0"], mixup.layers)
    images = torch.randn(4, 3, 8, 8, device=device).contiguous(memory_format=torch.channels_last)
    for seed in range(6):
        mixup.generator.manual_seed(seed)
        changed, _ = mixup(images, torch.eye(4, device=device))
        assert changed.is_contiguous(memory_format=torch.channels_last)
        assert copy.deepcopy(model).eval()(changed).shape == model(changed).shape


def test_inactive_layers_leave_the_batch_unchanged_and_drop_the_draw(device: torch.device) -> None:
    mixup = ManifoldMixup(2)
    model = mix_after(TwoStages(), ["one", "two"], mixup.layers)
    images, targets = batch(device)
    mixup(images, targets)
    with active(model, False):
        same = mixup(images, targets)
    assert same[0] is images
    assert same[1] is targets
    with pytest.raises(RuntimeError, match="no batch yet"):
        model(images)


def test_an_inactive_depth_mixes_no_targets(device: torch.device) -> None:
    mixup = ManifoldMixup(2, generator=torch.Generator(device).manual_seed(0))
    model = mix_after(TwoStages(), ["one", "two"], mixup.layers)
    set_active(model.one, False)
    changed = 0
    for _ in range(20):
        images, targets = mixup(*batch(device))
        assert torch.equal(model(images)[2], targets[:, :, None, None].expand_as(images))
        changed += not torch.equal(targets, batch(device)[1])
    assert 5 < changed < 20


def test_a_copied_model_does_not_share_the_draw(device: torch.device) -> None:
    mixup = ManifoldMixup(2)
    model = mix_after(TwoStages(), ["one", "two"], mixup.layers)
    images, _ = mixup(*batch(device))
    with pytest.raises(RuntimeError, match=r"no batch yet.*deepcopy"):
        copy.deepcopy(model)(images)
    twin, its_mixup = copy.deepcopy((model, mixup))
    images, targets = its_mixup(*batch(device))
    assert torch.equal(twin(images)[2], targets[:, :, None, None].expand_as(images))


def test_integer_targets_and_images_are_refused() -> None:
    images = torch.rand(4, 3, 2, 2)
    with pytest.raises(ValueError, match=r"\(4, classes\), got \(4,\)"):
        ManifoldMixup(1)(images, torch.tensor([0, 3, 1, 2]))
    with pytest.raises(ValueError, match=r"got torch\.uint8"):
        ManifoldMixup(1)(images.byte(), torch.eye(4))


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"alpha must be .* got 0"):
        ManifoldMixup(1, alpha=0)
    with pytest.raises(ValueError, match=r"p must be .* got 2"):
        ManifoldMixup(1, p=2)
    assert repr(ManifoldMixup(3)) == "ManifoldMixup(stages=3, alpha=2.0, p=1.0)"
