import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reid_runs import SIZE, seen_by_cameras, settings
from torch import Tensor, nn

from efdm.models import classifier_of
from efdm.models.backbones import build_backbone
from efdm.nn.domains import current_domains
from efdm.recognition.pixels import prepared
from efdm.recognition.step import fast_forwards
from efdm.reid.sets import PersonSets, TrainingPictures, training_pictures
from efdm.reid.settings import METHODS, Settings
from efdm.reid.step import make_step, scale_gradients
from efdm.training.step import Step


@pytest.fixture(scope="module")
def data() -> PersonSets:
    return PersonSets({"seen": seen_by_cameras(8, 4)})


def step_of(data: PersonSets, wanted: Settings) -> tuple[Step, TrainingPictures]:
    torch.manual_seed(0)
    pictures = training_pictures(wanted, data.to(wanted.device))
    return make_step(build_backbone(wanted.backbone, pictures.classes), pictures, wanted), pictures


def test_the_loss_is_cross_entropy_with_smoothed_labels(data: PersonSets) -> None:
    step, pictures = step_of(data, settings(augmentation=()))
    at = pictures.indices[:16]
    found = step(0, at, lr=0.0)["loss"]
    torch.manual_seed(0)
    logits = build_backbone("tiny", 8).train()(prepared(pictures.images[at], SIZE))
    smooth = 0.9 * F.one_hot(pictures.people[at], 8) + 0.1 / 8
    torch.testing.assert_close(found, -(smooth * logits.log_softmax(1)).sum(1).mean())


@pytest.mark.parametrize("labels", ["cameras", "datasets"])
def test_layers_get_the_domains_of_the_batch(data: PersonSets, labels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two = PersonSets({"seen": data["seen"], "other": data["seen"]})
    wanted = settings(train_domains=("seen", "other"), test_domains=(), domain_labels=labels)
    step, pictures = step_of(two, wanted)
    seen: list[Tensor | None] = []
    step.modules["model"].get_submodule("stage1").register_forward_hook(lambda *_: seen.append(current_domains()))
    at = pictures.indices[::9][:16]
    step(0, at, lr=0.0)
    source = two.joined(("seen", "other"))
    assert seen[0] is not None
    assert torch.equal(seen[0], (source.cameras if labels == "cameras" else source.sources)[at])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaled_gradients_equal_a_scaled_learning_rate(momentum: float) -> None:
    """Including weight decay, over several steps and with a changing learning rate."""
    torch.manual_seed(0)
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    two.load_state_dict(one.state_dict())
    handles = scale_gradients(two, 5.0, 0.1)
    slow, fast = (torch.optim.SGD(m.parameters(), lr=0.0, momentum=momentum, weight_decay=0.1) for m in (two, one))
    for lr in (0.01, 0.02, 0.005):
        x = torch.randn(4, 3)
        for model, optimizer, rate in ((one, fast, 5 * lr), (two, slow, lr)):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(one.weight, two.weight)
        torch.testing.assert_close(one.bias, two.bias)
    assert len(handles) == 2
    assert scale_gradients(nn.Linear(2, 2), 1.0, 0.1) == []


def test_the_classifier_is_not_compiled_if_its_inputs_are_needed() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.Flatten(), nn.Linear(3, 2)))
    compiled = settings(speed="compile")
    assert list(fast_forwards(net, compiled)) == list(net)
    assert list(fast_forwards(net, compiled, [classifier_of(net)])) == [net[0]]
    assert fast_forwards(net, settings()) == {}


def test_compiled_parts_of_osnet_end_where_stages_end() -> None:
    model = build_backbone("osnet_x0_25", 5)
    found = set(fast_forwards(model, settings(speed="compile"), [classifier_of(model)]))
    names = [name for name, module in model.named_modules() if module in found]
    assert names == ["conv1", "maxpool", "conv2", "conv3", "conv4", "conv5", "fc"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("method", "speed"), [*((m, "graph") for m in ("erm", "efdmix", "efdmix-labels", "dsu")), ("efdmix", "compile+graph")]
)
def test_fast_steps_of_osnet_train_as_plain_steps(method: str, speed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the first loss and the first update of all weights, with every augmentation and both losses.

    With other draws, or without mixing, the cosine of the updates is at most 0.1; with activations off by 1e-5 it is at
    least 0.65.
    """
    people = seen_by_cameras(8, 4)
    noise = torch.randint(256, people.images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    sets = PersonSets({"seen": dataclasses.replace(people, images=noise)})
    wanted = settings(
        device="cuda", backbone="osnet_x0_25", stages=("conv2", "conv3"), size=(64, 32), method=method, lr=1e-4,
        augmentation=("flip", "crop", "jitter", "erase"), batches="people", triplet_weight=1.0, weight_decay=0.0,
        options={"p": 1.0} if METHODS[method].options else {},
    )  # fmt: skip
    (plain, pictures), (fast, _) = (step_of(sets, dataclasses.replace(wanted, speed=s)) for s in ("plain", speed))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.set_float32_matmul_precision("highest")  # a step sets "high"
    begin = _parameters(plain)
    at = pictures.indices[:48:3]
    expected, found = (step(0, at, lr=wanted.lr)["loss"].item() for step in (plain, fast))
    assert found == pytest.approx(expected, rel=0.02)
    one, two = (_parameters(step) - begin for step in (plain, fast))
    assert torch.cosine_similarity(one, two, dim=0) > 0.5
    fast.release()


def _parameters(step: Step) -> Tensor:
    return torch.cat([p.detach().flatten().double() for p in step.modules["model"].parameters()])
