import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training import teacher_vgg, vgg_network

from efdm.models import build
from efdm.nn.losses import random_directions
from efdm.style.objective import PaperObjective, PerceptualObjective, ReconstructionObjective
from efdm.style.settings import Settings
from efdm.style.training import make_step
from efdm.training.distributed import mean_losses

CPU = torch.device("cpu")


class Toy(nn.Module):
    """An objective that records its inputs and trains one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Conv2d(3, 4, 1), None
        self.frozen = nn.Conv2d(3, 4, 1)

    def trained(self) -> list[nn.Module]:
        return [self.student]

    def forward(self, content: Tensor, style: Tensor, directions: list[Tensor]) -> dict[str, Tensor]:
        self.seen = [content, style]
        found = self.student(content)
        return {"loss": (found - self.frozen(style)).square().mean(), "strength": found.detach().square().mean()}


def settings(**changes: Any) -> Settings:
    return Settings(content="a", style="b", **{"device": "cpu", "precision": "fp32", "speed": "plain", **changes})


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_scales_bytes_and_trains_what_the_objective_names(precision: str) -> None:
    toy = Toy()
    step = make_step(toy, toy, settings(precision=precision))  # type: ignore[arg-type]
    content = torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)
    losses = step(0, content, content.flip(0), lr=0.1)
    assert torch.equal(toy.seen[0], content / 255)
    assert torch.equal(toy.seen[1], content.flip(0) / 255)
    assert [p.requires_grad for p in (toy.student.weight, toy.frozen.weight)] == [True, False]
    assert toy.student.weight.dtype == torch.float32
    assert losses["strength"].dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    assert isinstance(mean_losses(losses)["strength"], float)
    assert losses["gradient"] > 0


def real_objective(kind: str) -> Any:
    """Return an objective for a network and a VGG with random weights."""
    if kind == "paper":
        return PaperObjective(vgg_network(), style_weight=4.0)
    network = build("small")
    for p in network.parameters():
        if p.dim() == 4:
            nn.init.kaiming_normal_(p, nonlinearity="linear")
    if kind == "reconstruct":
        return ReconstructionObjective(network, teacher_vgg())
    return PerceptualObjective(network, teacher_vgg(), style_weight=50.0, sliced_weight=12.0, identity_weight=30.0)


def real_batch(kind: str, seed: int, device: torch.device) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(2, 2, 3, 8, 8, generator=generator)
    images = nn.functional.interpolate(coarse.flatten(0, 1), size=(32, 32), mode="bilinear").mul(255).to(torch.uint8)
    content, style = images.to(device).chunk(2)
    directions = [random_directions(16, c, generator).to(device) for c in (256, 512)] if kind == "perceptual" else []
    return content, style, *directions


def compare_steps(kind: str, device: torch.device, first: dict[str, str], second: dict[str, str]) -> None:
    """Check that the same steps, run in two ways, have similar losses and updates."""
    lr = 1e-5  # small: with random weights, rounding errors grow from step to step
    one = real_objective(kind)
    a, b = (
        make_step(
            objective, objective.network, settings(device=str(device), lr=lr, max_grad_norm=50.0, **how), ema_decay=0.9
        )
        for objective, how in ((one, first), (copy.deepcopy(one), second))
    )
    start = torch.cat([p.detach().flatten().clone() for p in a.parameters])
    for i in range(3):
        given = real_batch(kind, i, device)
        expected, found = (mean_losses(step(i, *given, lr=lr)) for step in (a, b))
        assert set(found) == set(expected)
        if i:  # the norm of the gradient is comparable only while the weights are the same
            expected.pop("gradient")
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=0.25 if name == "gradient" else 0.06, abs=1e-3), (i, name)
    moved = [torch.cat([p.detach().flatten() for p in s.parameters]) - start for s in (a, b)]
    assert all(m.abs().max() > lr for m in moved)
    # the first steps of Adam follow signs, and most gradients of a random decoder are smaller than rounding errors of bf16
    assert nn.functional.cosine_similarity(*moved, dim=0) > 0.2
    assert not torch.equal(b.averaged[0], b.parameters[0])


@pytest.mark.parametrize("kind", ["paper", "reconstruct", "perceptual"])
@pytest.mark.gpu
def test_a_captured_graph_in_bf16_trains_as_plain_steps(kind: str) -> None:
    half = {"precision": "bf16"}
    compare_steps(kind, torch.device("cuda"), {**half, "speed": "plain"}, {**half, "speed": "graph"})


@pytest.mark.parametrize("kind", ["paper", "perceptual"])
def test_bf16_trains_as_fp32(kind: str) -> None:
    compare_steps(kind, CPU, {"precision": "fp32"}, {"precision": "bf16"})
