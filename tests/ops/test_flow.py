"""EFDMix within a batch with ``style_grad="flow"``: the fused gradient is that of the formula."""

from __future__ import annotations

import oracle
import pytest
import torch
from tolerances import close
from torch import Tensor

from efdm import Partners, efdmix

# a permutation, several givers to one sample, every sample its own partner, one sample for all
PARTNERS = ([1, 2, 3, 0], [3, 3, 3, 0], [0, 1, 2, 3], [0, 0, 0, 0])
SIZES = ((torch.float64, 20), (torch.float32, 20), (torch.float32, 700), (torch.bfloat16, 1), (torch.float16, 35))


def mix(x: Tensor, index: Tensor, lam: Tensor, **options: int) -> Tensor:
    return efdmix(x, Partners(index, "drawn"), lam, style_grad="flow", **options)


@pytest.mark.parametrize("index", PARTNERS, ids=str)
def test_gradient_of_the_formula(index: list[int], device: torch.device) -> None:
    partner, lam = torch.tensor(index, device=device), torch.tensor([0.1, 1.0, 0.0, 0.6], device=device).double()
    for dtype, n in SIZES:
        x, g = (torch.randn(4, 3, n, device=device).to(dtype) for _ in range(2))
        a, b = x.clone().requires_grad_(), x.double().requires_grad_()
        actual, expected = mix(a, partner, lam), oracle.efdmix(b, partner, lam)
        close(actual, expected)
        actual.backward(g)
        expected.backward(g.double())
        close(a.grad, b.grad)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "channel_dim", "sliced", "expanded"])
def test_memory_formats(layout: str, device: torch.device) -> None:
    x, g = torch.randn(4, 6, 8, 10, device=device), torch.randn(4, 6, 8, 5, device=device)
    index, lam, options = torch.tensor([2, 0, 0, 3], device=device), torch.tensor([0.2, 0.5, 0.0, 1.0], device=device), {}
    x = x[..., ::2] if layout == "sliced" else x[..., :5].contiguous()
    if layout == "channels_last":
        x, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, g))
    if layout == "channel_dim":
        x, g, options = x.movedim(1, -1).contiguous(), g.movedim(1, -1), {"channel_dim": -1}
    if layout == "expanded":
        g = torch.ones((), device=device).expand(4, 6, 8, 5)
    a, b = x.detach().requires_grad_(), x.clone().requires_grad_()
    out, expected = mix(a, index, lam, **options), efdmix(b, b[index], lam, style_grad="flow", **options)
    out.backward(g)
    expected.backward(g)
    close(out, expected)
    close(a.grad, b.grad)
    if layout == "channels_last":
        assert out.stride() == a.grad.stride() == x.stride()


def test_only_positions_are_saved() -> None:
    x, saved = torch.randn(4, 3, 1000, requires_grad=True), []
    index, lam = torch.tensor([1, 0, 3, 2]), torch.rand(4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out = mix(x, index, lam)
    assert sum(t.nbytes for t in saved) <= 2 * x.numel() + index.nbytes + lam.nbytes
    out.relu_().sum().backward()  # the output can be modified in place
    assert not mix(x.detach(), index, lam).requires_grad


class WithoutGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def test_undefined_gradient() -> None:
    x = torch.randn(2, 3, 5, requires_grad=True)
    WithoutGradient.apply(mix(x, torch.tensor([1, 0]), torch.rand(2)), x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("lam", [(0.1, 0.5, 0.0, 1.0), (1.0,) * 4], ids=["mixed", "unmixed"])
def test_second_derivatives_and_transforms(lam: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> None:
    batches = torch.randn(3, 4, 2, 5, device=device, dtype=dtype)
    partner, share = torch.tensor([1, 3, 3, 0], device=device), torch.tensor(lam, device=device, dtype=dtype)
    results = []
    for function in (mix, oracle.efdmix):

        def loss(x: Tensor, function=function) -> Tensor:
            return (function(x, partner, share) ** 3).sum()

        first = torch.func.grad(loss)
        x = batches[0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x), x, create_graph=True)
        gradient.square().sum().backward()
        second = torch.func.grad(lambda x, first=first: first(x).square().sum())
        results.append((gradient, x.grad, torch.vmap(first)(batches), second(batches[0]), torch.vmap(second)(batches)))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_forward_mode_is_rejected() -> None:
    x, partner, lam = torch.randn(2, 2, 5), torch.tensor([1, 0]), torch.rand(2)
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(lambda a: mix(a, partner, lam), (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.requires_grad_(), x)
        with pytest.raises(RuntimeError, match="forward-mode"):
            mix(dual, partner, lam)
