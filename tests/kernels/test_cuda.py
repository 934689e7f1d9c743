"""CUDA kernels on other streams, in CUDA graphs and from other threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from tolerances import close

from efdm import Partners, efdmix, kernels
from efdm.kernels import reference

pytestmark = pytest.mark.gpu

SIZES = (4096, 20_000, 70_000)  # one thread block, chunks, and tiles


@pytest.mark.parametrize("n", SIZES)
def test_runs_on_the_current_stream(n: int) -> None:
    stream = torch.cuda.Stream()
    big = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            big = (big @ big).clamp(-1, 1)  # keeps the stream busy: a launch on another stream would read x too early
        x = big[:16].flatten()[: 16 * n].view(-1, n) if n <= 4096 else big.flatten()[: 16 * n].view(16, n)
        out = kernels.sort_match(x, x.flip(0))
    stream.synchronize()
    assert torch.equal(out, reference.sort_match(x, x.flip(0)))


@pytest.mark.parametrize("n", SIZES)
def test_cuda_graph(n: int) -> None:
    x, y = torch.randn(8, n, device="cuda"), torch.randn(8, n, device="cuda")

    def match() -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.sort_match(x, y), kernels.tolerant_match(x, kernels.sort_rows(y), 0.1)

    match()  # compiles and loads the kernels before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exact, tolerant = match()
    for _ in range(3):
        x.normal_()
        y.normal_()
        graph.replay()
        assert torch.equal(exact, reference.sort_match(x, y))
        close(tolerant, reference.tolerant_match(x, reference.sort_rows(y), 0.1))


def test_mixing_with_gradient_in_a_cuda_graph() -> None:
    x, grad = (torch.randn(6, 20, 100, 1, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    x, grad = (t.contiguous(memory_format=torch.channels_last) for t in (x, grad))
    partner, lam = torch.arange(6, device="cuda"), torch.zeros(6, device="cuda")

    def gradient() -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(efdmix(leaf, Partners(partner, "drawn"), lam, style_grad="flow"), leaf, grad)[0]

    gradient()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradient()
    for weights in (torch.rand(6), torch.ones(6), torch.rand(6).round(), torch.zeros(6)):  # ones: nothing is mixed
        lam.copy_(weights)
        partner.copy_(torch.randint(6, (6,)))
        x.normal_()
        graph.replay()
        assert captured.is_contiguous(memory_format=torch.channels_last)
        rows = (x.flatten(2), partner, 1 - lam)
        expected = reference.mix_backward(grad.flatten(2), reference.mix_order(*rows)[1], *rows[1:])
        close(captured.flatten(2), expected)


@pytest.mark.parametrize("n", SIZES)
def test_writes_every_element(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_like = torch.empty_like

    def filled(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = empty_like(*args, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty_like", filled)
    x, y = torch.randn(5, n, device="cuda"), torch.randn(5, n, device="cuda")
    assert not kernels.sort_match(x, y).isnan().any()
    assert not kernels.sort_rank(x)[0].isnan().any()
    assert not kernels.tolerant_match(x, y.sort().values, 0.1).isnan().any()
    x, partner = x.view(5, 1, n), torch.tensor([1, 1, 0, 3, 1], device="cuda")
    for weight in (torch.rand(5, device="cuda"), torch.zeros(5, device="cuda")):
        mixed, order = kernels.mix_order(x, partner, weight)
        assert not mixed.isnan().any()
        assert not kernels.mix_backward(x, order, partner, weight).isnan().any()
        moved, order = kernels.combine_order(x, weight.diag())
        assert not moved.isnan().any()
        assert not kernels.combine_backward(x, order, weight.diag()).isnan().any()


def test_from_another_thread() -> None:
    x, y = torch.randn(8, 777, device="cuda"), torch.randn(8, 777, device="cuda")
    results: list[torch.Tensor] = []
    worker = threading.Thread(target=lambda: results.append(kernels.sort_match(x, y)))
    worker.start()
    worker.join()
    assert torch.equal(results[0], reference.sort_match(x, y))


def test_kernel_by_dtype_and_length() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert kernels.choose_kernel(torch.device("cuda"), dtype, 16_384).name == "cuda_block"
        assert kernels.choose_kernel(torch.device("cuda"), dtype, 65_536).name == "cuda_chunks"
        assert kernels.choose_kernel(torch.device("cuda"), dtype, 65_537).name == "cuda_radix"
    assert kernels.choose_kernel(torch.device("cuda"), torch.float64, 10).name == "torch"
