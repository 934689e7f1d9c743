from __future__ import annotations

import copy
import io

import pytest
import torch
from tolerances import close
from torch import Tensor, nn
from training import numbered_vgg

from efdm.models import VGG, build, load_vgg
from efdm.nn.losses import random_directions
from efdm.style.objective import PaperObjective, ReconstructionObjective, SmallObjective
from efdm.style.step import Step, averaged, processes

CPU = torch.device("cpu")


class Toy(nn.Module):
    """One layer that learns what another does."""

    def __init__(self) -> None:
        super().__init__()
        self.learns, self.knows = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
        self.seen: list[Tensor] = []

    def trained(self) -> list[nn.Module]:
        return [self.learns]

    def forward(self, content: Tensor, style: Tensor, directions: list[Tensor]) -> dict[str, Tensor]:
        self.seen = [content, style]
        found = self.learns(content)
        loss = (found - self.knows(style)).square().mean()
        return {"loss": loss, "strength": found.detach().square().mean()}


def batch(seed: int = 0, device: torch.device = CPU) -> tuple[Tensor, Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    content = torch.randint(256, (2, 3, 4, 4), generator=generator, dtype=torch.uint8).to(device)
    return content, content.flip(0), []


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_a_step_is_torchs_adamw_on_what_is_trained() -> None:
    toy = Toy()
    mine = copy.deepcopy(toy)
    optimizer = torch.optim.AdamW(mine.learns.parameters(), lr=0.1, weight_decay=0.01)
    step = Step(toy, device=CPU, lr=0.1, weight_decay=0.01)
    for i, lr in enumerate((0.1, 0.05, 0.2)):
        losses = step(*batch(i), lr)
        content, style, _ = batch(i)
        expected = mine(content / 255, style / 255, [])["loss"]
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        close(losses["loss"], expected.detach())
        close(weights(toy.learns), weights(mine.learns))
    assert torch.equal(weights(toy.knows), weights(mine.knows))
    assert not toy.knows.weight.requires_grad


def test_bytes_become_pictures_between_0_and_1() -> None:
    toy = Toy()
    content, style, _ = batch()
    Step(toy, device=CPU, lr=0.1)(content, style, [], 0.1)
    assert torch.equal(toy.seen[0], content / 255)
    assert torch.equal(toy.seen[1], style / 255)


def test_the_average_follows_the_weights_slowly() -> None:
    toy = Toy()
    step = Step(toy, device=CPU, lr=0.1, ema_decay=0.75)
    expected = weights(toy.learns)
    for i in range(4):
        step(*batch(i), 0.1)
        expected = 0.75 * expected + 0.25 * weights(toy.learns)
    last = weights(toy.learns)
    step.use_average()
    close(weights(toy.learns), expected)
    assert (weights(toy.learns) - last).abs().max() > 0.01


def test_without_an_average_the_weights_are_used() -> None:
    toy = Toy()
    step = Step(toy, device=CPU, lr=0.1)
    step(*batch(), 0.1)
    last = weights(toy.learns)
    step.use_average()
    assert torch.equal(weights(toy.learns), last)


def test_a_long_gradient_is_shortened_and_its_length_told() -> None:
    toy = Toy()
    content, style, _ = batch()
    whole = torch.autograd.grad(toy(content / 255, style / 255, [])["loss"], list(toy.learns.parameters()))
    length = torch.cat([g.flatten() for g in whole]).norm()
    step = Step(toy, device=CPU, lr=0.1, max_grad_norm=float(length) / 4)
    close(step(content, style, [], 0.1)["gradient"], length)
    # Adam remembers a tenth of the gradient it was given
    close(torch.cat([s["exp_avg"].flatten() for s in step.optimizer.state.values()]).norm(), length / 40)


def test_a_restored_step_goes_on_as_if_nothing_had_happened() -> None:
    options = {"device": CPU, "lr": 0.1, "weight_decay": 0.01, "ema_decay": 0.9}
    toy = Toy()
    step = Step(toy, **options)
    for i in range(2):
        step(*batch(i), 0.1)
    saved, network = copy.deepcopy(step.state()), copy.deepcopy(toy.state_dict())
    other = Toy()
    other.load_state_dict(network)
    again = Step(other, **options)
    again.restore(saved)
    for i in range(2, 5):
        one, two = step(*batch(i), 0.05), again(*batch(i), 0.05)
        assert torch.equal(one["loss"], two["loss"])
    step.use_average()
    again.use_average()
    assert torch.equal(weights(toy), weights(other))


def test_graphs_are_for_gpus_and_plain_elsewhere() -> None:
    one, two = Toy(), Toy()
    two.load_state_dict(one.state_dict())
    a, b = Step(one, device=CPU, lr=0.1), Step(two, device=CPU, lr=0.1, speed="graph")
    for i in range(2):
        assert torch.equal(a(*batch(i), 0.1)["loss"], b(*batch(i), 0.1)["loss"])


def test_what_belongs_to_a_device_is_not_taken_from_a_checkpoint() -> None:
    """As a run that moves from a GPU to here finds it."""
    one, two = Toy(), Toy()
    step, again = (Step(toy, device=CPU, lr=0.1) for toy in (one, two))
    step(*batch(0), 0.1)
    two.load_state_dict(one.state_dict())
    saved = copy.deepcopy(step.state())
    group = saved["optimizer"]["param_groups"][0]  # type: ignore[index]
    group.update(lr=torch.tensor(0.1), fused=True, capturable=True)
    again.restore(saved)
    assert {k: again.optimizer.param_groups[0][k] for k in ("lr", "fused", "capturable")} == {
        "lr": 0.1, "fused": None, "capturable": False,
    }  # fmt: skip
    assert torch.equal(again(*batch(1), 0.1)["loss"], step(*batch(1), 0.1)["loss"])
    assert torch.equal(weights(one), weights(two))


# --- on a GPU --------------------------------------------------------------------------------------------------------

ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
ON_SECOND_GPU = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no second CUDA device")]


@pytest.mark.parametrize(
    "name", [pytest.param("cuda", marks=ON_GPU), pytest.param("cuda:1", marks=ON_SECOND_GPU)], ids=["current", "second"]
)
def test_a_replayed_graph_does_what_plain_steps_do(name: str) -> None:
    device = torch.device(name)
    one, two = Toy(), Toy()
    two.load_state_dict(one.state_dict())
    options = {"device": device, "lr": 0.1, "ema_decay": 0.9, "max_grad_norm": 1.0}
    a, b = Step(one, **options), Step(two, speed="graph", **options)
    for i in range(4):
        expected, found = a(*batch(i, device), 0.1 / (i + 1)), b(*batch(i, device), 0.1 / (i + 1))
        for loss in expected:
            close(found[loss], expected[loss])
    a.use_average()
    b.use_average()
    close(weights(two), weights(one))


def real_objective(kind: str) -> nn.Module:
    """A network and a VGG that have learnt nothing, in the objectives that are trained."""
    if kind == "paper":
        network = build("vgg16")
        load_vgg(network.stages[0], numbered_vgg("vgg16", blocks=4))  # type: ignore[arg-type]
        return PaperObjective(network, style_weight=4.0)
    network = build("small")
    for p in network.parameters():
        if p.dim() == 4:
            nn.init.kaiming_normal_(p, nonlinearity="linear")
    teacher = VGG("vgg16", "relu4_3", padding="zeros", pooling="floor")
    load_vgg(teacher, numbered_vgg("vgg16", blocks=4))
    if kind == "reconstruct":
        return ReconstructionObjective(network, teacher)
    return SmallObjective(network, teacher, style_weight=50.0, sliced_weight=12.0, identity_weight=30.0)


def real_batch(kind: str, seed: int, device: torch.device) -> tuple[Tensor, Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(2, 2, 3, 8, 8, generator=generator)
    pictures = nn.functional.interpolate(coarse.flatten(0, 1), size=(32, 32), mode="bilinear").mul(255).to(torch.uint8)
    content, style = pictures.to(device).chunk(2)
    directions = [random_directions(16, c, generator).to(device) for c in (256, 512)] if kind == "small" else []
    return content, style, directions


def compare_steps(kind: str, device: torch.device, first: dict[str, str], second: dict[str, str]) -> None:
    """Two ways to run the same steps have nearly the same losses and move the weights the same way."""
    one = real_objective(kind)
    two = copy.deepcopy(one)
    options = {"device": device, "lr": 1e-4, "ema_decay": 0.9, "max_grad_norm": 50.0}
    a, b = Step(one, **options, **first), Step(two, **options, **second)
    start = torch.cat([p.detach().flatten().clone() for p in a.parameters])
    for i in range(3):
        given = real_batch(kind, i, device)
        expected, found = averaged(a(*given, 1e-4)), averaged(b(*given, 1e-4))
        assert set(found) == set(expected)
        if i:  # the length of a gradient is a sum of many that nearly cancel: only the first is of the same weights
            expected.pop("gradient")
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=0.25 if name == "gradient" else 0.06, abs=1e-3), (i, name)
    moved = [torch.cat([p.detach().flatten() for p in s.parameters]) - start for s in (a, b)]
    assert all(m.abs().max() > 1e-4 for m in moved)
    # Adam's first steps follow signs, and most of a random decoder's gradients are smaller than the errors of halves
    assert nn.functional.cosine_similarity(*moved, dim=0) > 0.2
    assert not torch.equal(b.averaged[0], b.parameters[0])


@pytest.mark.parametrize("kind", ["paper", "reconstruct", "small"])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graph_in_bf16_trains_as_plain_steps_do(kind: str) -> None:
    half = {"precision": "bf16"}
    compare_steps(kind, torch.device("cuda"), {**half, "speed": "plain"}, {**half, "speed": "graph"})


@pytest.mark.parametrize("kind", ["paper", "small"])
def test_bf16_trains_as_fp32_does(kind: str) -> None:
    compare_steps(kind, CPU, {"precision": "fp32"}, {"precision": "bf16"})


@pytest.mark.parametrize(("before", "after"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
@pytest.mark.parametrize("speed", ["plain", "graph"])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_goes_on_on_another_device(before: str, after: str, speed: str) -> None:
    options = {"lr": 0.1, "weight_decay": 0.01, "ema_decay": 0.9, "speed": speed}
    here, there = torch.device(before), torch.device(after)
    toy, other = Toy(), Toy()
    step = Step(toy, device=here, **options)
    for i in range(2):
        step(*batch(i, here), 0.1)
    file = io.BytesIO()
    torch.save({"step": step.state(), "toy": toy.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, map_location=there, weights_only=True)
    again = Step(other, device=there, **options)
    other.load_state_dict(saved["toy"])
    again.restore(saved["step"])
    for i in range(2, 5):
        one, two = averaged(step(*batch(i, here), 0.05)), averaged(again(*batch(i, there), 0.05))
        assert two == pytest.approx(one, rel=1e-3)
    counts = [int(s["step"]) for s in again.optimizer.state.values()]
    assert counts == [5] * len(counts)  # neither begun anew nor counted while a graph was made
    step.use_average()
    again.use_average()
    torch.testing.assert_close(weights(other).cpu(), weights(toy).cpu(), rtol=1e-3, atol=1e-4)


def test_half_precision_is_only_inside() -> None:
    toy = Toy()
    losses = Step(toy, device=CPU, lr=0.1, precision="bf16")(*batch(), 0.1)
    assert toy.learns.weight.dtype == torch.float32
    assert losses["strength"].dtype == torch.bfloat16
    assert isinstance(averaged(losses)["strength"], float)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"speed": "fast"}, "speed='fast' is not one of 'plain'"), ({"precision": "fp16"}, "precision='fp16' is not one of")],
)
def test_wrong_choices_are_told(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Step(Toy(), device=CPU, lr=0.1, **options)


def test_alone_there_is_one_process() -> None:
    assert processes() == (0, 1)
    assert averaged({"loss": torch.tensor(2.5), "content": torch.tensor(1)}) == {"loss": 2.5, "content": 1.0}
