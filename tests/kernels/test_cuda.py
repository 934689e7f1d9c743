"""CUDA kernels on other streams, in CUDA graphs and from other threads."""

from __future__ import annotations

import threading

import pytest
import torch

from efdm import kernels
from efdm.kernels import reference

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SIZES = (4096, 20_000)  # one thread block, and several chunks


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
    kernels.sort_match(x, y)  # compiles and loads the kernel before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernels.sort_match(x, y)
    for _ in range(3):
        x.normal_()
        y.normal_()
        graph.replay()
        assert torch.equal(out, reference.sort_match(x, y))


@pytest.mark.parametrize("n", SIZES)
def test_writes_every_element(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda t, **k: empty_like(t, **k).fill_(torch.nan))
    x, y = torch.randn(5, n, device="cuda"), torch.randn(5, n, device="cuda")
    assert not kernels.sort_match(x, y).isnan().any()
    assert not kernels.sort_rank(x)[0].isnan().any()


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
        assert kernels.choose_kernel(torch.device("cuda"), dtype, 65_537).name == "torch"
    assert kernels.choose_kernel(torch.device("cuda"), torch.float64, 10).name == "torch"


def test_torch_kernel_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    from efdm.kernels import dispatch

    rows = tuple(
        dispatch.Kernel(**{**k.__dict__, "unavailable_reason": lambda: "no compiler"}) if k.name.startswith("cuda") else k
        for k in dispatch.KERNELS
    )
    monkeypatch.setattr(dispatch, "KERNELS", rows)
    dispatch._decide.cache_clear()
    try:
        x, y = torch.randn(4, 64, device="cuda"), torch.randn(4, 64, device="cuda")
        assert dispatch.choose_kernel(x.device, x.dtype, 64).name == "torch"
        assert torch.equal(kernels.sort_match(x, y), reference.sort_match(x, y))
    finally:
        dispatch._decide.cache_clear()
