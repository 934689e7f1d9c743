from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn

from efdm.training.compiled import compiled, replaced_forwards


@pytest.fixture(autouse=True)
def _traced_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trace without compiling: these tests check which code is reused, not how fast it is."""
    pytest.importorskip("torch._dynamo")
    compiled.cache_clear()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    yield
    compiled.cache_clear()


def model(width: int = 4) -> nn.Sequential:
    """Return two stages of different shapes."""
    stages = [nn.Sequential(nn.Conv2d(a, b, 3), nn.BatchNorm2d(b), nn.ReLU()) for a, b in ((3, width), (width, 2 * width))]
    return nn.Sequential(*stages)


def all_compiled(module: nn.Sequential) -> AbstractContextManager[None]:
    return replaced_forwards(dict.fromkeys(module, compiled()))


def graphs() -> int:
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def test_models_of_one_architecture_share_compiled_code() -> None:
    images, first, second = torch.rand(2, 3, 9, 9), model(), model()
    expected = second(images)
    before = graphs()
    with all_compiled(first):
        first(images)
    assert graphs() == before + 2
    with all_compiled(second):
        found = second(images)
    assert graphs() == before + 2  # reused
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found, first(images))
    with all_compiled(wider := model(6)):
        wider(images)
    assert graphs() == before + 4


def test_hooks_are_not_compiled_and_hooked_models_share_code() -> None:
    images, plain, mixed = torch.rand(2, 3, 9, 9), model(), model()
    with all_compiled(plain):
        plain(images)
    before = graphs()

    def negative(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        assert not torch.compiler.is_compiling()
        return -output

    mixed[0].register_forward_hook(negative)
    with all_compiled(mixed):
        found = mixed(images)
    assert graphs() == before
    torch.testing.assert_close(found, mixed(images))
    mixed[0]._forward_hooks.clear()
    assert not torch.allclose(found, mixed(images))


def test_the_model_is_restored_afterwards() -> None:
    changed = model()
    with contextlib.suppress(RuntimeError), all_compiled(changed):
        assert "forward" in vars(changed[0])
        raise RuntimeError
    assert "forward" not in vars(changed[0])
    assert changed[0].forward.__func__ is nn.Sequential.forward


def test_gradients_through_compiled_parts() -> None:
    images, one = torch.rand(2, 3, 9, 9), model()
    one(images).square().sum().backward()
    expected = [p.grad.clone() for p in one.parameters()]
    one.zero_grad()
    with all_compiled(one):
        out = one(images)
    out.square().sum().backward()
    for p, gradient in zip(one.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-4, atol=1e-4)
