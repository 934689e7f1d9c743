"""Selection of pictures, and features after stages."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from efdm import EFDMix, mix_after
from efdm.data.domains import DomainSet
from efdm.lab.analyses import Sample, pick
from efdm.recognition.pixels import prepared


def two_stages() -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4)),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 5, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def gathered(model: nn.Module, data: DomainSet, indices: Tensor, stage: str, **options: int) -> Tensor:
    return torch.cat([features[stage] for _, features in Sample(model, data, indices, 32, **options).features(stage)])


def test_equally_many_of_each_domain(data: DomainSet) -> None:
    picked = pick(data, 7)
    assert data.domains[picked].bincount().tolist() == [7] * 4
    assert len(picked.unique()) == len(picked)


def test_pictures_are_spread_evenly(data: DomainSet) -> None:
    domain = data.domain_names[1]
    everything = data.select(domain, "test")
    assert torch.equal(pick(data, 5, domains=[domain]), everything[::4])
    assert torch.equal(pick(data, None, domains=[domain]), everything)
    assert torch.equal(pick(data, 1000, domains=[domain]), everything)


def test_pictures_of_one_class(data: DomainSet, tmp_path: Path) -> None:
    picked = pick(data, 1, classes=["3"])
    assert {data.classes[label] for label in data.labels[picked].tolist()} == {"3"}
    assert data.domains[picked].bincount().tolist() == [1] * 4
    assert Sample(two_stages(), data, picked, 32).save("x", {}, tmp_path)["classes"] == ["3"]
    assert "classes" not in Sample(two_stages(), data, pick(data, None), 32).save("x", {}, tmp_path)
    with pytest.raises(ValueError, match="classes='three' is not one of"):
        pick(data, 1, classes=["three"])


def test_empty_selections(data: DomainSet) -> None:
    with pytest.raises(ValueError, match="per_domain must be >= 1"):
        pick(data, 0)
    with pytest.raises(ValueError, match="no pictures to analyse"):
        pick(data.subset(torch.tensor([], dtype=torch.int64)), 3)


def test_features_of_a_stage(data: DomainSet) -> None:
    model, indices = two_stages().eval(), torch.tensor([30, 2, 71, 5, 44])
    expected = model[0](prepared(data.images[indices], 32))
    torch.testing.assert_close(gathered(model, data, indices, "0", batch=2), expected.detach())


def test_features_are_copied_before_in_place_modules(data: DomainSet) -> None:
    assert (gathered(two_stages(), data, pick(data, 2), "0") < 0).any()  # not yet changed by the ReLU


def test_the_model_is_unchanged(data: DomainSet) -> None:
    model = mix_after(two_stages(), ["0"], EFDMix(p=1))
    model[2].eval()  # a frozen module
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    hooks = len(model[0]._forward_hooks)
    indices = pick(data, 3)
    torch.testing.assert_close(gathered(model, data, indices, "0", batch=5), gathered(model, data, indices, "0", batch=12))
    next(Sample(model, data, indices, 32, batch=2).features("0"))  # stopped early
    assert torch.is_grad_enabled()
    assert [m.training for m in model.modules()] == modes
    assert len(model[0]._forward_hooks) == hooks
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())  # including batch norm's averages


def test_several_stages_in_one_pass(data: DomainSet) -> None:
    (labels, features), *rest = Sample(two_stages(), data, pick(data, 1), 32).features(["2", "0"])
    assert not rest
    assert labels.tolist() == [0, 1, 2, 3]
    assert {stage: tuple(f.shape) for stage, f in features.items()} == {"2": (4, 5, 13, 13), "0": (4, 4, 15, 15)}


def test_tokens_become_channels_first_without_the_class_token(data: DomainSet) -> None:
    model = models.VisionTransformer(32, 8, num_layers=1, num_heads=2, hidden_dim=12, mlp_dim=8)
    assert gathered(model, data, pick(data, 1), "stage1").shape == (4, 12, 16)


@pytest.mark.parametrize(
    ("stage", "message"), [("3x", "has no stage '3x'"), ("4", "choose another stage"), ("spare", "does not call spare")]
)
def test_wrong_stages(data: DomainSet, stage: str, message: str) -> None:
    class Model(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[4](self[3](self[2](self[1](self[0](x)))))

    model = Model(*two_stages())
    model.add_module("spare", nn.ReLU())
    with pytest.raises(ValueError, match=message):
        list(Sample(model, data, pick(data, 1), 32).features(stage))


def test_domain_numbers_are_consecutive(data: DomainSet, tmp_path: Path) -> None:
    names = [data.domain_names[3], data.domain_names[1]]
    picked = pick(data, 2, domains=names)
    sample = Sample(two_stages(), data, picked, 32)
    assert [sample.domains[n] for n in sample.labels.tolist()] == [names[0], names[0], names[1], names[1]]
    assert sample.save("x", {}, tmp_path)["pictures"] == dict.fromkeys(sorted(names, key=data.domain_names.index), 2)
