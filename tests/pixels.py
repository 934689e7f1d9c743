"""Random pictures, definitions of operations on them, and checks of functions that draw random numbers."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.models.vgg import IMAGENET_MEAN, IMAGENET_STD

# Positions are float32: at an edge from black to white an error of 1e-5 pixels is 1e-5 / 0.22 after normalization.
NEAR = {"rtol": 0, "atol": 3e-4}


def normalized(pixels: Tensor) -> Tensor:
    """Return pixels from 0 to 255 normalized as for networks that were trained on ImageNet."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (pixels / 255 - mean) / std


def resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(images.float(), size, mode="bilinear", align_corners=False)


def noise(batch: int, height: int, width: int = 0, seed: int = 0) -> Tensor:
    return torch.randint(256, (batch, 3, height, width or height), generator=seeded(seed), dtype=torch.uint8)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def record_draws(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return a list that receives the results of each call of ``module.uniform``."""
    values: list[Tensor] = []
    uniform = module.uniform

    def record(*shape: int, **where: object) -> Tensor:
        values.append(uniform(*shape, **where))
        return values[-1]

    monkeypatch.setattr(module, "uniform", record)
    return values


def check_captured(call: Callable[[Tensor, torch.Generator], Tensor], first: Tensor, second: Tensor) -> None:
    """Check that a CUDA graph repeats eager calls for new pictures and random numbers, and reads nothing back."""
    images, generator = first.cuda(), torch.Generator("cuda")
    wanted = [call(each.cuda(), generator.manual_seed(seed)) for seed, each in enumerate((first, second))]
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.graph(graph):
            out = call(images, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for seed, (each, expected) in enumerate(zip((first, second), wanted, strict=True)):
        images.copy_(each)
        generator.manual_seed(seed)
        graph.replay()
        assert torch.equal(out, expected)
