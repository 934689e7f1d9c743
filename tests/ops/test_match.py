"""`efdm`: exactness, tie rules, layouts, sizes, masks, prepared styles and partners."""

from __future__ import annotations

import oracle
import pytest
import torch
from cases import CASES, rows
from tolerances import DTYPES, close
from torch import Tensor

from efdm import Partners, efdm, prepare
from efdm.ops.choices import CHOICES


def in_order(features: Tensor) -> Tensor:
    """Return the sorted values of every channel."""
    plain = torch.where(features.isnan(), torch.nan, features)  # torch.sort on CUDA puts some NaN with a sign bit first
    return plain.flatten(2).sort(-1).values


def pair(device: torch.device, dtype: torch.dtype = torch.float32, space=(6, 5), style_space=None) -> tuple[Tensor, Tensor]:
    x = torch.randn(3, 4, *space, device=device).to(dtype)
    y = (torch.randn(3, 4, *(style_space or space), device=device) * 2 + 1).to(dtype)
    return x, y


def check_contract(x: Tensor, y: Tensor) -> None:
    """Check the output of rows ``(b, 1, n)``: the sorted style bit for bit, and the oracle's assignment of values."""
    out = efdm(x, y, ties="stable")
    assert out.dtype == x.dtype
    actual, expected = in_order(out), in_order(y)
    assert bool(((actual == expected) | (actual.isnan() & expected.isnan())).all())
    if x.shape[-1] < 2000:
        slow = [[oracle.efdm_row(a.tolist(), b.tolist())] for a, b in zip(x[:, 0], y[:, 0], strict=True)]
        assert torch.equal(out.nan_to_num(7.0), torch.tensor(slow, dtype=torch.float64).to(out).nan_to_num(7.0))


@pytest.mark.parametrize("case", CASES)
def test_named_cases(case: str) -> None:
    check_contract(*(t.unsqueeze(1) for t in rows(case, torch.float32, torch.device("cpu"))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    for case in ("worked_example", "after_relu", "both_zeros", "infinities", "nan", "huge", "tiny"):
        check_contract(*(t.unsqueeze(1) for t in rows(case, dtype, device)))


@pytest.mark.parametrize("ties", CHOICES["ties"])
def test_every_tie_rule_is_exact(ties: str, device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for style_grad in CHOICES["style_grad"]:
            x, y = pair(device, dtype)
            x = x.relu().requires_grad_()
            y.requires_grad_(style_grad == "flow")
            out = efdm(x, y, ties=ties, style_grad=style_grad)
            assert torch.equal(in_order(out), in_order(y))
            order = x.flatten(2).argsort(dim=-1, stable=True)
            moved = out.flatten(2).gather(-1, order)
            increasing = x.flatten(2).gather(-1, order).diff(dim=-1) > 0
            assert bool((moved.diff(dim=-1)[increasing] >= 0).all()), "the order of the content must be preserved"


@pytest.mark.parametrize("space", [(11,), (5, 6), (3, 4, 2), (2, 3, 2, 2)], ids=["signal", "image", "volume", "video"])
def test_any_number_of_spatial_dimensions(space: tuple[int, ...]) -> None:
    x, y = pair(torch.device("cpu"), space=space)
    out = efdm(x, y)
    assert out.shape == x.shape
    assert torch.equal(out.flatten(2), efdm(x.flatten(2), y.flatten(2)))


@pytest.mark.parametrize("shape", [(3, 4, 6, 5), (2, 6, 128, 96)], ids=["small", "large"])
def test_channels_last_is_preserved(shape: tuple[int, ...], device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x, y = torch.randn(shape, device=device).to(dtype), torch.randn(shape, device=device).to(dtype)
        out = efdm(x.contiguous(memory_format=torch.channels_last), y)
        assert out.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(out, efdm(x, y))
        assert efdm(x, y.contiguous(memory_format=torch.channels_last)).is_contiguous()


def test_strided_and_expanded_features(device: torch.device) -> None:
    x, y = pair(device, space=(8, 10))
    assert torch.equal(efdm(x[..., ::2], y[..., 1::2]), efdm(x[..., ::2].contiguous(), y[..., 1::2].contiguous()))
    one = y[:1].expand(3, -1, -1, -1)
    assert torch.equal(efdm(x, one), efdm(x, one.contiguous()))
    assert torch.equal(efdm(x, y[:1]), efdm(x, one.contiguous()))


@pytest.mark.parametrize("shape", [(3, 6, 5, 4), (3, 30, 4)], ids=["nhwc", "tokens"])
def test_channel_dim(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(shape), torch.randn(shape)
    out = efdm(x, y, channel_dim=-1)
    assert out.is_contiguous()
    assert torch.equal(out, efdm(x.movedim(-1, 1), y.movedim(-1, 1)).movedim(1, -1))
    assert torch.equal(out, efdm(x, y, channel_dim=x.ndim - 1))
    mask = torch.rand(shape[:-1]) < 0.6
    out = efdm(x, y, channel_dim=-1, content_mask=mask)
    assert torch.equal(out, efdm(x.movedim(-1, 1), y.movedim(-1, 1), content_mask=mask).movedim(1, -1))


@pytest.mark.parametrize(("sizes", "resample"), [("interpolate", oracle.interpolated), ("nearest", oracle.nearest)])
def test_sizes(sizes: str, resample, device: torch.device) -> None:
    for n, m in ((7, 13), (13, 7), (1, 5), (5, 1), (64, 63), (30, 30)):
        x, y = torch.randn(2, 3, n, device=device), torch.randn(2, 3, m, device=device)
        out = efdm(x, y, sizes=sizes)
        for b in range(2):
            for c in range(3):
                expected = oracle.efdm_row(x[b, c].tolist(), resample(y[b, c].tolist(), n))
                close(out[b, c].cpu(), torch.tensor(expected))
        if n == m:
            assert torch.equal(out, efdm(x, y))
        if sizes == "nearest":
            assert set(out.flatten().tolist()) <= set(y.flatten().tolist())


def test_different_shapes_of_equal_size() -> None:
    x, y = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 3, 8)
    assert torch.equal(in_order(efdm(x, y)), in_order(y))


# Ties


def test_neighbor_ties_follow_the_sum_of_neighbors(device: torch.device) -> None:
    x = (torch.randn(1, 2, 6, 5, device=device) * 1.5).round()
    y = torch.randn(1, 2, 6, 5, device=device)
    out = efdm(x, y, ties="neighbor")
    for c in range(2):
        key = oracle.plus_sums(x[0, c].cpu()).flatten().tolist()
        expected = oracle.efdm_row(x[0, c].flatten().tolist(), y[0, c].flatten().tolist(), key)
        assert out[0, c].flatten().tolist() == torch.tensor(expected).tolist()


def test_random_ties_use_the_generator(device: torch.device) -> None:
    x, y = torch.zeros(1, 1, 100, device=device), torch.arange(100.0, device=device).view(1, 1, -1)
    first, again, other = (
        efdm(x, y, ties="random", generator=torch.Generator(device).manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, y)
    distinct = torch.randn(1, 1, 100, device=device)
    assert torch.equal(efdm(distinct, y, ties="random"), efdm(distinct, y))


def test_random_ties_reach_every_order() -> None:
    x, y = torch.zeros(6000, 1, 3), torch.arange(3.0).expand(6000, 1, 3)
    orders, counts = efdm(x, y, ties="random")[:, 0].unique(dim=0, return_counts=True)
    assert len(orders) == 6
    assert counts.min() > 800  # expected value 1000, standard deviation 29


# Masks


@pytest.mark.parametrize("ties", ["stable", "random", "neighbor"])
def test_masks_of_equal_size(ties: str, device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x, y = pair(device, dtype)
        content_mask = torch.zeros(3, 6, 5, dtype=torch.bool, device=device)
        style_mask = content_mask.clone()
        content_mask[:, :3], style_mask[:, 3:] = True, True
        out = efdm(x, y, ties=ties, content_mask=content_mask, style_mask=style_mask)
        assert torch.equal(out[:, :, 3:], x[:, :, 3:]), "values outside the mask must not change"
        assert torch.equal(in_order(out[:, :, :3]), in_order(y[:, :, 3:])), "selected values must match exactly"
        if ties == "stable":
            assert torch.equal(out[:, :, :3], efdm(x[:, :, :3], y[:, :, 3:]))


def test_masks_of_different_size_per_sample(device: torch.device) -> None:
    x, y = pair(device, space=(40,), style_space=(33,))
    content_mask = torch.rand(3, 40, device=device) < torch.tensor([[0.2], [0.5], [0.9]], device=device)
    style_mask = torch.rand(3, 33, device=device) < torch.tensor([[0.9], [0.5], [0.3]], device=device)
    out = efdm(x, y, content_mask=content_mask, style_mask=style_mask)
    for b in range(3):
        inside, selected = content_mask[b], style_mask[b]
        close(out[b][:, inside], efdm(x[b : b + 1][..., inside], y[b : b + 1][..., selected])[0])
        assert torch.equal(out[b][:, ~inside], x[b][:, ~inside])


def test_shared_masks_and_masks_of_one_side(device: torch.device) -> None:
    x, y = pair(device)
    mask = torch.rand(6, 5, device=device) < 0.5
    assert torch.equal(efdm(x, y, content_mask=mask), efdm(x, y, content_mask=mask.expand(3, 6, 5)))
    assert torch.equal(efdm(x, y, style_mask=mask), efdm(x, prepare(y, style_mask=mask)))
    everything = torch.ones(6, 5, dtype=torch.bool, device=device)
    assert torch.equal(efdm(x, y, content_mask=everything, style_mask=everything), efdm(x, y))


def test_empty_selection_leaves_the_content_unchanged() -> None:
    x, y = pair(torch.device("cpu"))
    mask = torch.zeros(3, 6, 5, dtype=torch.bool)
    mask[1:] = True
    out = efdm(x, y, style_mask=mask)
    assert torch.equal(out[0], x[0])
    assert torch.equal(in_order(out[1:]), in_order(y[1:]))
    assert torch.equal(efdm(x, y, content_mask=mask)[0], x[0])


def test_mask_per_sample_with_a_shared_style() -> None:
    x, y = torch.randn(2, 3, 4, 4), torch.randn(1, 3, 4, 4)
    mask = torch.rand(2, 4, 4) < 0.5
    expected = efdm(x, y.expand(2, -1, -1, -1).contiguous(), content_mask=mask)
    for style in (y, prepare(y)):
        assert torch.equal(efdm(x, style, content_mask=mask), expected)


# Prepared styles and partners


def test_prepared_style(device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x, y = pair(device, dtype)
        prepared = prepare(y)
        assert torch.equal(efdm(x, prepared), efdm(x, y))
        assert torch.equal(efdm(x, prepared, ties="neighbor"), efdm(x, y, ties="neighbor"))
        other = torch.randn(3, 4, 9, device=device).to(dtype)
        for sizes in CHOICES["sizes"]:
            assert torch.equal(efdm(other, prepared, sizes=sizes), efdm(other, y, sizes=sizes))
        mask = torch.rand(6, 5, device=device) < 0.5
        assert torch.equal(efdm(x, prepared, content_mask=mask), efdm(x, y, content_mask=mask))
        frames = torch.randn(5, 4, 6, 6, device=device).to(dtype)
        assert torch.equal(efdm(frames, prepare(y[:1])), efdm(frames, y[:1]))


def test_prepared_style_caches_the_last_size() -> None:
    prepared = prepare(torch.randn(1, 2, 30))
    frame = torch.randn(1, 2, 17)
    efdm(frame, prepared)
    first = prepared._cache["interpolate"]
    assert first.shape[-1] == 17
    efdm(frame, prepared)
    assert prepared._cache["interpolate"] is first
    for n in (18, 19, 17):
        other = torch.randn(1, 2, n)
        assert torch.equal(efdm(other, prepared), efdm(other, prepared.values))
        assert [v.shape[-1] for v in prepared._cache.values()] == [n]


def test_prepared_style_converts_and_prints() -> None:
    prepared = prepare(torch.randn(1, 2, 30), style_mask=torch.rand(1, 30) < 0.5)
    assert prepared.to(torch.float64).values.dtype == torch.float64
    assert repr(prepared) == "PreparedStyle(shape=(1, 2, 30), dtype=torch.float32, device=cpu, masked)"
    assert prepare(prepared) is prepared


def test_prepared_style_after_tracing() -> None:
    style = prepare(torch.randn(1, 3, 5))

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return efdm(x, style)

    x = torch.randn(1, 3, 8)
    torch.export.export(Model(), (x,), strict=False)
    assert efdm(x, style).isfinite().all()


@pytest.mark.parametrize("ties", ["stable", "neighbor"])
def test_partners_equal_indexed_styles(ties: str, device: torch.device) -> None:
    x = torch.randn(5, 4, 6, 5, device=device).relu()
    index = torch.tensor([1, 1, 0, 4, 2], device=device)
    assert torch.equal(efdm(x, Partners(index), ties=ties), efdm(x, x[index], ties=ties))
    mask = torch.rand(5, 6, 5, device=device) < 0.6
    close(
        efdm(x, Partners(index), ties=ties, content_mask=mask),
        efdm(x, x[index], ties=ties, content_mask=mask, style_mask=mask[index]),
    )
