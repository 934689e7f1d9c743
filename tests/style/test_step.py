from __future__ import annotations

import copy

import pytest
import torch
from tolerances import close
from torch import Tensor, nn

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
    step = Step(toy, device=CPU, lr=0.1, average=0.75)
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
    step = Step(toy, device=CPU, lr=0.1, longest=float(length) / 4)
    close(step(content, style, [], 0.1)["gradient"], length)
    # Adam remembers a tenth of the gradient it was given
    close(torch.cat([s["exp_avg"].flatten() for s in step.optimizer.state.values()]).norm(), length / 40)


def test_a_restored_step_goes_on_as_if_nothing_had_happened() -> None:
    options = {"device": CPU, "lr": 0.1, "weight_decay": 0.01, "average": 0.9}
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_replayed_graph_does_what_plain_steps_do() -> None:
    device = torch.device("cuda")
    one, two = Toy(), Toy()
    two.load_state_dict(one.state_dict())
    options = {"device": device, "lr": 0.1, "average": 0.9, "longest": 1.0}
    a, b = Step(one, **options), Step(two, speed="graph", **options)
    for i in range(4):
        expected, found = a(*batch(i, device), 0.1 / (i + 1)), b(*batch(i, device), 0.1 / (i + 1))
        for name in expected:
            close(found[name], expected[name])
    a.use_average()
    b.use_average()
    close(weights(two), weights(one))


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
