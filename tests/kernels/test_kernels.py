"""Every kernel agrees with the reference on every named case and in every dtype."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cases import CASES, rows
from tolerances import close
from torch import Tensor

from efdm import kernels
from efdm.kernels import cpu, reference
from efdm.kernels.dispatch import ENV_VARIABLE, KERNELS, Kernel


def _kernels_on_devices(dtypes: str) -> Iterator[object]:
    for kernel in KERNELS:
        for device, marks in (("cpu", []), ("cuda", [pytest.mark.gpu])):
            if kernel.device in ("any", device):
                for dtype in kernel.dtypes if dtypes == "all" else (torch.float32,):
                    name = f"{kernel.name}-{device}-{dtype}".replace("torch.", "")
                    yield pytest.param(kernel, torch.device(device), dtype, id=name, marks=marks)


each_kernel = pytest.mark.parametrize(("kernel", "where", "dtype"), list(_kernels_on_devices("float32")))
each_kernel_and_dtype = pytest.mark.parametrize(("kernel", "where", "dtype"), list(_kernels_on_devices("all")))


@pytest.fixture(autouse=True)
def _force_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "kernel" in request.fixturenames:
        monkeypatch.setenv(ENV_VARIABLE, request.getfixturevalue("kernel").name)


def same(a: Tensor, b: Tensor) -> bool:
    """Return True if all values are equal and NaN is at the same positions."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def sorted_bits(t: Tensor) -> Tensor:
    """Return the sorted bit patterns of every row, without the sign of NaN."""
    words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return torch.where(t.isnan(), torch.iinfo(words).max, t.contiguous().view(words)).sort(-1).values


def check_against_reference(x: Tensor, y: Tensor) -> None:
    matched = kernels.sort_match(x, y)
    assert same(matched, reference.sort_match(x, y))
    assert torch.equal(sorted_bits(matched), sorted_bits(y)), "values must keep their bits"
    assert matched.dtype == x.dtype
    assert matched.device == x.device

    values = kernels.sort_rows(y)
    assert same(values, reference.sort_rows(y))
    assert torch.equal(sorted_bits(values), sorted_bits(y))
    assert same(kernels.match_sorted(x, values), matched)
    content = reference.sort_rows(x)
    assert same(kernels.quantile_values(content, values), reference.quantile_values(content, values))

    values, rank = kernels.sort_rank(x)
    expected_values, expected_rank = reference.sort_rank(x)
    assert same(values, expected_values)
    assert torch.equal(rank, expected_rank)
    assert same(kernels.take(values, rank), x)


@each_kernel
@pytest.mark.parametrize("case", CASES)
def test_named_cases(kernel: Kernel, where: torch.device, dtype: torch.dtype, case: str) -> None:
    x, y = rows(case, dtype, where)
    if x.shape[-1] <= kernel.max_length(where, dtype):
        check_against_reference(x, y)


@each_kernel_and_dtype
def test_dtypes(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    for case in ("worked_example", "after_relu", "both_zeros", "infinities", "nan", "huge", "tiny", "two_chunks"):
        x, y = rows(case, dtype, where)
        if x.shape[-1] <= kernel.max_length(where, dtype):
            check_against_reference(x, y)


@each_kernel_and_dtype
def test_tolerant(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    names = "worked_example one_value odd_length after_relu all_equal infinities nan huge two_chunks"
    for case in names.split():
        x, y = rows(case, dtype, where)
        if x.shape[-1] > kernel.max_length(where, dtype):
            continue
        x[0, ::3] = torch.nan  # as outside a mask
        values, (content, rank) = reference.sort_rows(y), reference.sort_rank(x)
        for tolerance in (1e-6, 0.1, 100.0):
            made = kernels.tolerant_match(x, values, tolerance)
            close(made, reference.tolerant_match(x, values, tolerance))
            assert same(kernels.take(kernels.tolerant_values(content, values, tolerance), rank), made)
            assert made.dtype == x.dtype
    none = torch.zeros(0, 5, device=where, dtype=dtype)
    assert kernels.tolerant_match(none, none, 0.1).shape == none.shape


@each_kernel_and_dtype
@pytest.mark.parametrize("n", [2, 31, 33, 64, 513, 833, 4097, 16_384, 16_385, 18_433, 65_536, 65_537])
def test_tolerant_at_the_limits_of_blocks_and_tiles(kernel: Kernel, where: torch.device, dtype: torch.dtype, n: int) -> None:
    if n > kernel.max_length(where, dtype):
        return
    x = torch.randn(3, n)
    x[1], x[2, ::5] = x[1].relu(), torch.nan
    x, values = x.to(where, dtype), torch.randn(3, n).exp().sort().values.to(where, dtype)
    for tolerance in (0.01, 0.5):
        close(kernels.tolerant_match(x, values, tolerance), reference.tolerant_match(x, values, tolerance))


@each_kernel_and_dtype
def test_mix_partners(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    partner = torch.tensor([4, 3, 0, 0, 1], device=where)
    weight = torch.tensor([0.0, 1.0, 0.25, 0.75, 0.5], device=where)
    for n in (1, 7, 100, 5000):
        if n > kernel.max_length(where, dtype):
            continue
        x = torch.randn(5, 3, n).to(where, dtype)
        x[..., 0] = torch.inf
        out = kernels.mix_partners(x, partner, weight)
        matched = reference.sort_match(x, x[partner])
        assert same(out[0], x[0])
        assert same(out[1], matched[1])
        close(out, reference.lerp(x.double(), matched.double(), weight).to(dtype))
        assert same(kernels.mix_partners(x, partner, torch.zeros_like(weight)), x)


@each_kernel_and_dtype
def test_mix_order_and_backward(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    weight = torch.tensor([0.0, 1.0, 0.25, 0.75, 0.5], device=where).to(wide)
    # a permutation, several givers to one sample, all samples their own partners
    for index, n in (
        ([4, 3, 0, 1, 2], 1),
        ([3, 3, 0, 3, 3], 7),
        ([0, 1, 2, 3, 4], 100),
        ([4, 3, 0, 0, 1], 5000),
        ([1] * 5, 40_000),
    ):
        if n > kernel.max_length(where, dtype):
            continue
        partner, x, grad = torch.tensor(index, device=where), *(torch.randn(5, 3, n).to(where, dtype) for _ in range(2))
        x[:, 1] = x[:, 1].relu()
        mixed, order = kernels.mix_order(x, partner, weight)
        assert torch.equal(mixed, kernels.mix_partners(x, partner, weight))
        assert torch.equal(order, reference.mix_order(x, partner, weight)[1])
        close(
            kernels.mix_backward(grad, order, partner, weight), reference.mix_backward(grad.double(), order, partner, weight)
        )
        grad[0, 0, 0] = torch.inf  # the weight of this sample is zero, and zero times infinity is NaN
        assert not kernels.mix_backward(grad, order, partner, weight).isnan().any()
        none = torch.zeros_like(weight)
        assert torch.equal(kernels.mix_backward(grad, kernels.mix_order(x, partner, none)[1], partner, none), grad)


@each_kernel_and_dtype
def test_combine_order_and_backward(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    for n, shape in ((1, (5, 5)), (7, (3, 5, 5)), (100, (5, 5)), (5000, (3, 5, 5)), (40_000, (5, 5))):
        if n > kernel.max_length(where, dtype):
            continue
        x, grad = (torch.randn(5, 3, n).to(where, dtype) for _ in range(2))
        x[:, 1] = x[:, 1].relu()
        matrix = torch.randn(shape).to(where) / 2
        moved, order = kernels.combine_order(x, matrix)
        assert torch.equal(order, reference.combine_order(x, matrix)[1])
        close(moved, reference.combine_order(x.double(), matrix)[0])
        close(kernels.combine_backward(grad, order, matrix), reference.combine_backward(grad.double(), order, matrix))
        x[0, 0, 0] = torch.inf  # zero times infinity is NaN
        moved, order = kernels.combine_order(x, torch.zeros_like(matrix))
        assert torch.equal(moved, x)
        assert torch.equal(kernels.combine_backward(x, order, torch.zeros_like(matrix)), x)


@each_kernel
def test_many_rows_no_rows_and_strided_rows(kernel: Kernel, where: torch.device, dtype: torch.dtype) -> None:
    # more rows than a second grid dimension allows (65,535)
    x, y = torch.randn(70_001, 5).to(where, dtype), torch.randn(70_001, 5).to(where, dtype)
    assert torch.equal(kernels.sort_match(x, y), reference.sort_match(x, y))
    empty = x[:0]
    assert kernels.sort_match(empty, empty).shape == (0, 5)
    assert kernels.sort_rank(empty)[1].shape == (0, 5)
    assert kernels.quantile_values(empty, empty).shape == (0, 5)
    none, index, weight = x[:0].view(0, 3, 5), torch.arange(0, device=where), torch.rand(0, device=where)
    mixed, order = kernels.mix_order(none, index, weight)
    assert mixed.shape == order.shape == kernels.mix_backward(none, order, index, weight).shape == none.shape
    x, y = torch.randn(33, 2, 40).to(where, dtype).transpose(0, 2), torch.randn(33, 4, 40).to(where, dtype)
    y = y[:, ::2].transpose(0, 2)
    assert torch.equal(kernels.sort_match(x, y), reference.sort_match(x.contiguous(), y.contiguous()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_network_with_partially_filled_blocks(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    # the network sorts 16 rows together; few distinct values reveal a lost position
    monkeypatch.setenv(ENV_VARIABLE, "cpu_network")
    for count in (1, 9, 16, 17, 40, 193):
        check_against_reference(*((torch.randn(count, 65) * 3).round().to(dtype) for _ in range(2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_buckets(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_VARIABLE, "cpu_radix")
    monkeypatch.setattr(cpu, "MIN_BUCKETED_BYTES", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for case in ("worked_example", "one_value", "both_zeros", "nan", "all_equal"):
        check_against_reference(*rows(case, dtype, torch.device("cpu")))
    n = 100_000  # four buckets
    ties, spread = torch.randn(4, n).relu(), torch.randn(4, n).exp() * torch.tensor([1e-30, 1, -1, 1e3])[:, None]
    x, y = torch.cat([ties, spread]).to(dtype), torch.cat([spread, (ties * 9).round()]).to(dtype)
    x[:, ::5], x[1, ::7], y[:, 3], y[2, ::2] = -0.0, torch.nan, torch.inf, -torch.inf
    check_against_reference(x, y)
    values = reference.sort_rows(torch.randn(8, n).to(dtype))
    close(kernels.tolerant_match(x, values, 0.1), reference.tolerant_match(x, values, 0.1))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 33, 513, 12_321, 16_384, 40_000, 65_536, 100_000])
def test_cpu_and_gpu_agree(n: int) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, y = torch.randn(9, n).to(dtype).relu(), torch.randn(9, n).to(dtype)
        assert torch.equal(kernels.sort_match(x.cuda(), y.cuda()).cpu(), kernels.sort_match(x, y))
        assert torch.equal(kernels.sort_rank(x.cuda())[1].cpu(), kernels.sort_rank(x)[1])
        assert torch.equal(kernels.sort_rows(y.cuda()).cpu(), kernels.sort_rows(y))
