"""Channel statistics, AdaIN, AdaMean, AdaStd and MixStyle."""

from __future__ import annotations

import oracle
import pytest
import torch
from cases import WORKED_X, WORKED_Y
from tolerances import DTYPES, close

from efdm import MATCHERS, Partners, adain, adamean, adastd, channel_stats, mixstyle, prepare, tied_share


def pair(device: torch.device, dtype: torch.dtype = torch.float32):
    return torch.randn(3, 4, 6, 5, device=device).to(dtype), (torch.randn(3, 4, 6, 5, device=device) * 2 + 1).to(dtype)


def test_worked_example(device: torch.device) -> None:
    x, y = torch.tensor([[WORKED_X]], device=device), torch.tensor([[WORKED_Y]], device=device)
    torch.testing.assert_close(
        adain(x, y, eps=0).cpu(), torch.tensor([[[0.0617, 0.3096, 0.0617, 0.5574, 0.3096]]]), atol=5e-5, rtol=0
    )
    actual = [s.item() for s in channel_stats(y)]
    assert actual == pytest.approx([0.26, 0.2074, -0.113, 0.966, 0.5], abs=5e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adain_and_mixstyle_formulas(dtype: torch.dtype, device: torch.device) -> None:
    x, y = pair(device, dtype)
    out = adain(x, y)
    assert out.dtype == dtype
    close(out, oracle.adain(x.double(), y.double(), 1e-5).to(dtype))
    lam = torch.tensor([0.0, 0.4, 1.0], device=device, dtype=torch.float64)
    close(mixstyle(x, y, lam), oracle.mixstyle(x.double(), y.double(), lam, 1e-6).to(dtype))


def test_adamean_and_adastd_formulas(device: torch.device) -> None:
    x, y = pair(device, torch.float64)
    mean_x, mean_y = x.mean((2, 3), keepdim=True), y.mean((2, 3), keepdim=True)
    scale = ((y.var((2, 3), keepdim=True) + 1e-5) / (x.var((2, 3), keepdim=True) + 1e-5)).sqrt()
    close(adamean(x, y), x - mean_x + mean_y)
    close(adastd(x, y), x * scale)
    close(adastd(x, y, mean="content"), (x - mean_x) * scale + mean_x)


def test_augmentation_defaults() -> None:
    assert MATCHERS["adastd"].augmentation["mean"] == "content"
    assert MATCHERS["adain"].augmentation["eps"] == 1e-6


@pytest.mark.parametrize("name", ["adain", "adamean", "adastd", "hm"])
def test_every_matcher_accepts_every_style_and_layout(name: str, device: torch.device) -> None:
    match = MATCHERS[name]
    x, y = pair(device)
    close(match(x, prepare(y)), match(x, y))
    close(match(x, y[:1]), match(x, y[:1].expand_as(y)))
    index = torch.tensor([2, 0, 1], device=device)
    close(match(x, Partners(index)), match(x, x[index]))
    nhwc = match(x.movedim(1, -1), y.movedim(1, -1), channel_dim=-1)
    close(nhwc.movedim(-1, 1), match(x, y))
    last = match(x.contiguous(memory_format=torch.channels_last), y)
    assert last.is_contiguous(memory_format=torch.channels_last)
    inside = torch.rand(3, 6, 5, device=device) < 0.6
    selected = torch.rand(3, 6, 5, device=device) < 0.6
    out = match(x, y, content_mask=inside, style_mask=selected)
    for b in range(3):
        expected = match(x[b : b + 1][..., inside[b]], y[b : b + 1][..., selected[b]])
        close(out[b][:, inside[b]], expected[0])
        assert torch.equal(out[b][:, ~inside[b]], x[b][:, ~inside[b]])


def test_constant_channel(device: torch.device) -> None:
    x, y = torch.full((1, 2, 9), 3.0, device=device), torch.randn(1, 2, 9, device=device)
    assert adain(x, y).isfinite().all()
    close(adain(x, y).mean(-1), y.mean(-1))
    stats = channel_stats(x)
    assert stats.std.tolist() == stats.skewness.tolist() == stats.kurtosis.tolist() == [[0.0, 0.0]]


def test_single_position(device: torch.device) -> None:
    x, y = torch.randn(2, 3, 1, 1, device=device), torch.randn(2, 3, 1, 1, device=device)
    close(adain(x, y), y)
    assert channel_stats(x).std.abs().max() == 0


def test_stats_with_a_mask(device: torch.device) -> None:
    x = torch.randn(1, 3, 40, device=device, dtype=torch.float64)
    mask = torch.rand(40, device=device) < 0.5
    for masked, expected in zip(channel_stats(x, mask=mask), channel_stats(x[..., mask]), strict=True):
        close(masked, expected)


def test_mixstyle_gradient_with_detached_statistics(device: torch.device) -> None:
    x, y = (t.double().requires_grad_() for t in pair(device))
    mixstyle(x, y, 0.25).sum().backward()
    scale = ((y.var((2, 3), keepdim=True) + 1e-6) / (x.var((2, 3), keepdim=True) + 1e-6)).sqrt().detach()
    close(x.grad, (0.25 + 0.75 * scale).expand_as(x))
    assert y.grad is None


def test_adain_gradients() -> None:
    x, y = (torch.randn(1, 2, 7, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: adain(a, b, style_grad="flow"), (x, y))
    assert torch.autograd.gradcheck(lambda a: adain(a, y.detach()), (x,))
    adain(x, y).sum().backward()
    assert y.grad is None


def test_tied_share(device: torch.device) -> None:
    x = torch.randn(2, 3, 1000, device=device)
    assert tied_share(x).max() < 0.02
    share = tied_share(x.relu())
    close(share, (x <= 0).float().mean(-1) + tied_share(x) * 0)
    assert tied_share(torch.zeros(1, 1, 5, device=device)).item() == 1
    assert tied_share(torch.zeros(1, 1, 1, device=device)).item() == 0


def test_statistics_of_tiny_values(device: torch.device) -> None:
    x = torch.tensor([[[0.0, 1e-25, 2e-25]]], device=device, requires_grad=True)
    stats = channel_stats(x)
    assert all(s.isfinite().all() for s in stats)
    sum(s.sum() for s in stats).backward()
    assert x.grad.isfinite().all()


def test_nan_propagates_to_the_statistics(device: torch.device) -> None:
    x = torch.randn(1, 1, 9, device=device)
    x[..., 3] = torch.nan
    assert all(s.isnan().all() for s in channel_stats(x))
