"""Every row of the kernel table agrees with the definition, on every named case."""

from __future__ import annotations

import pytest
import torch
from cases import CASES, rows
from tolerances import close
from torch import Tensor

from efdm import kernels
from efdm.kernels import reference
from efdm.kernels.dispatch import ENV_VARIABLE, KERNELS, Kernel


def same(a: Tensor, b: Tensor) -> bool:
    """Equal values, NaN in the same places."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def bits(t: Tensor) -> Tensor:
    """The bit patterns of every row as a multiset: a row of sorted integers, the sign of NaN left out."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return torch.where(t.isnan(), torch.iinfo(words).max, t.contiguous().view(words)).sort(-1).values


def _served() -> list[object]:
    """Every (kernel, device, dtype) of the table."""
    gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
    return [
        pytest.param(kernel, torch.device(device), dtype, id=f"{kernel.name}-{device}-{dtype}", marks=marks)
        for kernel in KERNELS
        for device, marks in (("cpu", []), ("cuda", gpu))
        for dtype in kernel.dtypes
        if kernel.device in ("any", device)
    ]


served = pytest.mark.parametrize(("kernel", "where", "dtype"), _served())


@pytest.fixture(autouse=True)
def _forced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "kernel" in request.fixturenames:
        monkeypatch.setenv(ENV_VARIABLE, request.getfixturevalue("kernel").name)


@served
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_definition(kernel: Kernel, where: torch.device, dtype: torch.dtype, case: str) -> None:
    x, y = rows(case, dtype, where)
    if x.shape[-1] > kernel.max_length(where, dtype):
        pytest.skip(f"{kernel.name} takes shorter rows")
    matched = kernels.sort_match(x, y)
    assert same(matched, reference.sort_match(x, y))
    assert torch.equal(bits(matched), bits(y)), "values must be moved, bit for bit"
    assert matched.dtype == dtype
    assert matched.device == x.device

    values = kernels.sort_rows(y)
    assert same(values, reference.sort_rows(y))
    assert torch.equal(bits(values), bits(y))
    assert same(kernels.match_sorted(x, values), matched)

    values, rank = kernels.sort_rank(x)
    expected_values, expected_rank = reference.sort_rank(x)
    assert same(values, expected_values)
    assert torch.equal(rank, expected_rank)
    assert same(kernels.take(values, rank), x)


@served
@pytest.mark.parametrize("n", [1, 7, 100, 5000])
def test_mix_partners(kernel: Kernel, where: torch.device, dtype: torch.dtype, n: int) -> None:
    if n > kernel.max_length(where, dtype):
        pytest.skip(f"{kernel.name} takes shorter rows")
    x = torch.randn(5, 3, n).to(where, dtype)
    x[..., 0] = torch.inf
    partner = torch.tensor([4, 3, 0, 0, 1], device=where)
    weight = torch.tensor([0.0, 1.0, 0.25, 0.75, 0.5], device=where)
    out = kernels.mix_partners(x, partner, weight)
    matched = reference.sort_match(x, x[partner])
    assert same(out[0], x[0])
    assert same(out[1], matched[1])
    close(out, reference.lerp(x.double(), matched.double(), weight).to(dtype))
    assert same(kernels.mix_partners(x, partner, torch.zeros_like(weight)), x), "nobody mixes"


@served
def test_many_rows(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    # more rows than a second grid dimension can count (65,535), and than there are threads
    x, y = torch.randn(70_001, 5).to(where, dtype), torch.randn(70_001, 5).to(where, dtype)
    assert torch.equal(kernels.sort_match(x, y), reference.sort_match(x, y))


@served
@pytest.mark.parametrize("count", [1, 9, 96, 97, 100, 193])
def test_rows_that_do_not_fill_blocks(kernel: Kernel, where: torch.device, dtype: torch.dtype, count: int) -> None:
    # the network takes up to 96 rows at once, in whole cache lines of 8; few levels, so that a lost position shows
    x, y = ((torch.randn(count, 65) * 3).round().to(where, dtype) for _ in range(2))
    assert torch.equal(kernels.sort_match(x, y), reference.sort_match(x, y))
    assert torch.equal(kernels.sort_rows(y), reference.sort_rows(y))
    for found, expected in zip(kernels.sort_rank(x), reference.sort_rank(x), strict=True):
        assert torch.equal(found, expected)


@served
def test_no_rows(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    x = torch.randn(0, 7, device=where, dtype=dtype)
    assert kernels.sort_match(x, x).shape == (0, 7)
    assert kernels.sort_rank(x)[1].shape == (0, 7)


@served
def test_strided_rows(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    x, y = torch.randn(33, 2, 40).to(where, dtype).transpose(0, 2), torch.randn(33, 4, 40).to(where, dtype)
    y = y[:, ::2].transpose(0, 2)
    assert torch.equal(kernels.sort_match(x, y), reference.sort_match(x.contiguous(), y.contiguous()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "n", [1, 31, 33, 512, 513, 1024, 3136, 8192, 12_321, 16_384, 16_385, 40_000, 65_536, 65_537, 100_000]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_cpu_and_gpu_agree(n: int, dtype: torch.dtype) -> None:
    x, y = torch.randn(9, n).to(dtype).relu(), torch.randn(9, n).to(dtype)
    assert torch.equal(kernels.sort_match(x.cuda(), y.cuda()).cpu(), kernels.sort_match(x, y))
    assert torch.equal(kernels.sort_rank(x.cuda())[1].cpu(), kernels.sort_rank(x)[1])
    assert torch.equal(kernels.sort_rows(y.cuda()).cpu(), kernels.sort_rows(y))
