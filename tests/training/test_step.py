from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from tolerances import close
from torch import Tensor, nn

from efdm.training.distributed import mean_losses, processes
from efdm.training.step import Step, restore_optimizer, seeds_of, set_lr

CPU = torch.device("cpu")


class Toy(nn.Module):
    """A layer that is trained to imitate a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1).requires_grad_(False)

    def losses(self, images: Tensor) -> dict[str, Tensor]:
        found = self.student(images)
        return {"loss": (found - self.teacher(images.flip(0))).square().mean(), "strength": found.square().mean()}


def make_step(toy: Toy, device: torch.device = CPU, **options: Any) -> Step:
    return Step(toy.to(device).losses, {"toy": toy}, device=device, lr=0.1, **options)


def images(seed: int = 0, device: torch.device = CPU) -> Tensor:
    return torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(seed)).to(device)


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_a_step_is_adamw_on_the_parameters_that_require_gradients() -> None:
    toy = Toy()
    mine = copy.deepcopy(toy)
    optimizer = torch.optim.AdamW(mine.student.parameters(), lr=0.1, weight_decay=0.01)
    step = make_step(toy, weight_decay=0.01)
    for i, lr in enumerate((0.1, 0.05, 0.2)):
        found = step(i, images(i), lr=lr)
        expected = mine.losses(images(i))["loss"]
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        close(found["loss"], expected.detach())
        close(weights(toy.student), weights(mine.student))
    assert torch.equal(weights(toy.teacher), weights(mine.teacher))
    assert "gradient" not in found


def test_finishing_a_step_uses_the_moving_average() -> None:
    toy = Toy()
    step = make_step(toy, ema_decay=0.75)
    expected = weights(toy.student)
    for i in range(4):
        step(i, images(i), lr=0.1)
        expected = 0.75 * expected + 0.25 * weights(toy.student)
    last = weights(toy.student)
    step.finish()
    close(weights(toy.student), expected)
    assert (weights(toy.student) - last).abs().max() > 0.01


def test_long_gradients_are_clipped_and_their_norm_is_reported() -> None:
    toy = Toy()
    gradients = torch.autograd.grad(toy.losses(images())["loss"], list(toy.student.parameters()))
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    step = make_step(toy, max_grad_norm=float(norm) / 4)
    close(step(0, images(), lr=0.1)["gradient"], norm)
    # the first moment of Adam is a tenth of the gradient
    close(torch.cat([s["exp_avg"].flatten() for s in step.optimizer.state.values()]).norm(), norm / 40)


def test_a_restored_step_continues_exactly() -> None:
    options: dict[str, Any] = {"weight_decay": 0.01, "ema_decay": 0.9}
    toy, other = Toy(), Toy()
    step = make_step(toy, **options)
    for i in range(2):
        step(i, images(i), lr=0.1)
    again = make_step(other, **options)
    again.restore(copy.deepcopy(step.state()))
    for i in range(2, 5):
        assert torch.equal(step(i, images(i), lr=0.05)["loss"], again(i, images(i), lr=0.05)["loss"])
    step.finish(), again.finish()
    assert torch.equal(weights(toy), weights(other))


def test_seeds_of_neighbouring_iterations_differ() -> None:
    seeds = [seed for run in range(20) for i in range(20) for seed in seeds_of(run, i)]
    assert len(set(seeds)) == len(seeds)


def test_a_learning_rate_that_is_a_tensor_is_set_in_place() -> None:
    """A captured graph reads the tensor."""
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=rate)
    set_lr(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5


def test_device_options_of_an_optimizer_are_not_restored() -> None:
    parameter = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    parameter.sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["param_groups"][0].update(lr=torch.tensor(0.7), fused=True)
    other = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.3, momentum=0.9)
    restore_optimizer(other, state)
    assert other.param_groups[0]["lr"] == 0.3
    assert not other.param_groups[0]["fused"]
    assert torch.equal(next(iter(other.state.values()))["momentum_buffer"], torch.ones(2))


def test_a_single_process_has_rank_0_of_1() -> None:
    assert processes() == (0, 1)
    assert mean_losses({"loss": torch.tensor(2.5), "content": torch.tensor(1)}) == {"loss": 2.5, "content": 1.0}


@pytest.mark.gpu
def test_a_captured_graph_trains_as_plain_steps() -> None:
    device, one = torch.device("cuda"), Toy()
    two = copy.deepcopy(one)
    plain, graph = (make_step(toy, device, ema_decay=0.9, max_grad_norm=1.0, speed=speed)
                    for toy, speed in ((one, "plain"), (two, "graph")))  # fmt: skip
    for i in range(4):
        expected, found = (step(i, images(i, device), lr=0.1 / (i + 1)) for step in (plain, graph))
        for loss in expected:
            close(found[loss], expected[loss])
    plain.finish(), graph.finish()
    close(weights(two), weights(one))


@pytest.mark.parametrize(("before", "after"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
@pytest.mark.parametrize("speed", ["plain", "graph"])
@pytest.mark.gpu
def test_a_step_continues_on_another_device(before: str, after: str, speed: str) -> None:
    options: dict[str, Any] = {"weight_decay": 0.01, "ema_decay": 0.9, "speed": speed}
    here, there = torch.device(before), torch.device(after)
    step, again = make_step(Toy(), here, **options), make_step(Toy(), there, **options)
    for i in range(2):
        step(i, images(i, here), lr=0.1)
    file = io.BytesIO()
    torch.save(step.state(), file)
    file.seek(0)
    again.restore(torch.load(file, map_location=there, weights_only=True))
    for i in range(2, 5):
        one, two = step(i, images(i, here), lr=0.05), again(i, images(i, there), lr=0.05)
        assert mean_losses(two) == pytest.approx(mean_losses(one), rel=1e-3)
    counts = [int(s["step"]) for s in again.optimizer.state.values()]
    assert counts == [5] * len(counts)  # capturing a graph is not counted
    step.finish(), again.finish()
    toy, other = step.modules["toy"], again.modules["toy"]
    torch.testing.assert_close(weights(other).cpu(), weights(toy).cpu(), rtol=1e-3, atol=1e-4)
