"""Declared gradients. `gradcheck` cannot pass on a straight-through operation, so they are compared directly."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tolerances import DTYPES, close
from torch import Tensor

from efdm import Partners, adain, blend, channel_stats, efdm, efdmix, histogram_match, prepare
from efdm.ops import mix_features

CPU = torch.device("cpu")


def features(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=device).to(dtype).requires_grad_()


@pytest.mark.parametrize("match", [efdm, histogram_match])
def test_identity_for_the_content_and_none_for_the_style(match, device: torch.device) -> None:
    for dtype in DTYPES:
        x, y = features(2, 3, 5, 4, device=device, dtype=dtype), features(2, 3, 5, 4, device=device, dtype=dtype)
        g = torch.randn(2, 3, 5, 4, device=device).to(dtype)
        match(x, y).backward(g)
        assert torch.equal(x.grad, g)
        assert y.grad is None


def test_content_grad_stop(device: torch.device) -> None:
    x, y = features(2, 3, 20, device=device), features(2, 3, 20, device=device)
    assert not efdm(x, y, content_grad="stop").requires_grad
    out = efdm(x, y, content_grad="stop", style_grad="flow")
    out.sum().backward()
    assert x.grad is None
    assert torch.equal(y.grad, torch.ones_like(y))


@pytest.mark.parametrize("ties", ["stable", "neighbor"])
def test_flow_reaches_the_assigned_style_value(ties: str, device: torch.device) -> None:
    x, y = features(2, 3, 5, 4, device=device), features(2, 3, 5, 4, device=device)
    g = torch.randn_like(x)
    out = efdm(x, y, ties=ties, style_grad="flow")
    out.backward(g)
    assert torch.equal(x.grad, g)
    # without ties, every output equals one style value and passes its gradient to it
    rows_out, rows_y = out.detach().flatten(2), y.detach().flatten(2)
    source = (rows_out.unsqueeze(-1) == rows_y.unsqueeze(-2)).long().argmax(-1)
    expected = torch.zeros_like(rows_y).scatter(-1, source, g.flatten(2))
    assert torch.equal(y.grad.flatten(2), expected)


@pytest.mark.parametrize("m", [7, 20, 31])
def test_flow_with_different_sizes_preserves_the_sum(m: int) -> None:
    x, y = features(2, 3, 20, device=CPU), features(2, 3, m, device=CPU)
    g = torch.randn_like(x)
    efdm(x, y, style_grad="flow").backward(g)
    close(y.grad.sum(-1), g.sum(-1))  # interpolation weights sum to 1


def test_identity_gradient_with_a_mask(device: torch.device) -> None:
    x, y = features(2, 3, 20, device=device), features(2, 3, 20, device=device)
    g = torch.randn_like(x)
    efdm(x, y, content_mask=torch.rand(2, 20, device=device) < 0.5).backward(g)
    assert torch.equal(x.grad, g)


@pytest.mark.parametrize("style_grad", ["stop", "flow"])
def test_efdmix_gradient_is_one_for_every_lam(style_grad: str, device: torch.device) -> None:
    for dtype in DTYPES:
        x, y = features(4, 3, 20, device=device, dtype=dtype), features(4, 3, 20, device=device, dtype=dtype)
        lam = torch.tensor([0.0, 0.3, 0.75, 1.0], device=device)
        g = torch.randn_like(x)
        efdmix(x, y, lam, style_grad=style_grad).backward(g)
        assert torch.equal(x.grad, g)
        if style_grad == "stop":
            assert y.grad is None
        else:
            close(y.grad.sum(-1), ((1 - lam).view(-1, 1, 1).to(g) * g).double().sum(-1).to(dtype))


def test_second_derivatives_of_the_content(device: torch.device) -> None:
    x, y = features(1, 2, 9, device=device), features(1, 2, 9, device=device)
    (first,) = torch.autograd.grad((efdm(x, y) ** 2).sum(), x, create_graph=True)
    first.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.0))


@pytest.mark.parametrize("call", ["efdm", "prepared", "efdmix", "hm", "partners"])
def test_nothing_is_saved_for_backward(call: str) -> None:
    x, y = features(2, 3, 1000, device=CPU), torch.randn(2, 3, 1000)
    prepared, index = prepare(y), Partners(torch.tensor([1, 0]))
    calls = {
        "efdm": lambda: efdm(x, y),
        "prepared": lambda: efdm(x, prepared),
        "efdmix": lambda: efdmix(x, y, torch.tensor([0.2, 0.7])),
        "hm": lambda: histogram_match(x, y),
        "partners": lambda: efdmix(x, index, 0.4),
    }
    saved: list[Tensor] = []

    def record(t: Tensor) -> Tensor:
        saved.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(record, lambda t: t):
        out = calls[call]()
    assert out.requires_grad
    assert sum(t.numel() for t in saved) == 0


@pytest.mark.gpu
def test_match_allocates_only_its_output() -> None:
    x, y = features(8, 64, 64, 64, device=torch.device("cuda")), torch.randn(8, 64, 64, 64, device="cuda")
    efdm(x, y)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    out = efdm(x, y)
    assert torch.cuda.memory_allocated() - before == out.numel() * out.element_size()


@pytest.mark.parametrize("style_grad", ["stop", "flow"])
def test_function_transforms(style_grad: str, device: torch.device) -> None:
    x, y = torch.randn(4, 3, 10, device=device), torch.randn(4, 3, 10, device=device)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return (efdm(a, b, style_grad=style_grad) ** 2).sum()

    expected = 2 * efdm(x, y)
    assert torch.equal(torch.func.grad(loss)(x, y), expected)
    mapped = torch.vmap(torch.func.grad(lambda a, b: loss(a[None], b[None])))(x, y)
    assert torch.equal(mapped, expected)
    assert torch.equal(torch.vmap(lambda a: efdm(a[None], y[:1])[0])(x), efdm(x, y[:1]))
    to_style = torch.func.grad(loss, argnums=1)(x, y)
    assert torch.equal(to_style, 2 * y if style_grad == "flow" else torch.zeros_like(y))


def test_forward_mode_is_rejected() -> None:
    x, y = torch.randn(1, 2, 5), torch.randn(1, 2, 5)
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(lambda a: efdm(a, y), (x,), (x,))
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(lambda b: efdm(x, b, style_grad="flow"), (y,), (y,))
    torch.func.jvp(lambda a: a * efdm(x, y), (x,), (x,))  # constants carry no tangent


def test_second_derivatives_of_the_style(device: torch.device) -> None:
    gradients = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        x, y = torch.randn(1, 1, 6, device=device).to(dtype), torch.randn(1, 1, 6, device=device).to(dtype).requires_grad_()
        (first,) = torch.autograd.grad((efdm(x, y, style_grad="flow") ** 3).sum(), y, create_graph=True)
        (first.square().sum() + y.square().sum()).backward()
        gradients.append(y.grad.double())
        torch.testing.assert_close(y.grad, 36 * y.detach() ** 3 + 2 * y.detach())  # every style value is assigned once
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


def test_nan_outside_a_mask_does_not_affect_gradients(device: torch.device) -> None:
    x, y = torch.randn(1, 2, 5, device=device), torch.randn(1, 2, 5, device=device)
    x[..., 4], y[..., 0] = torch.nan, torch.inf
    inside = torch.tensor([True] * 4 + [False], device=device)
    for match in (adain, efdm, histogram_match):
        a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
        match(a, b, content_mask=inside, style_mask=inside.flip(0), style_grad="flow")[..., :4].square().sum().backward()
        assert a.grad[..., :4].isfinite().all()
        assert b.grad[..., 1:].isfinite().all()


def test_statistics_of_a_constant_channel_have_finite_gradients(device: torch.device) -> None:
    x = torch.zeros(1, 1, 5, device=device, requires_grad=True)
    sum(s.sum() for s in channel_stats(x)).backward()
    assert x.grad.isfinite().all()
    constant = torch.full((1, 1, 3136), 0.1, device=device)
    stats = channel_stats(constant, mask=torch.ones(3136, dtype=torch.bool, device=device))
    assert stats.skewness.item() == stats.kurtosis.item() == stats.std.item() == 0


def test_learnable_weight_has_a_gradient_at_the_ends(device: torch.device) -> None:
    for start in (0.0, 0.5, 1.0):
        w = torch.tensor([start], device=device, requires_grad=True)
        blend(torch.zeros(1, 1, 3, device=device), torch.ones(1, 1, 3, device=device), w).sum().backward()
        assert w.grad.item() == 3
    x, lam = torch.randn(2, 3, 9, device=device), torch.tensor([0.2, 0.7], device=device, requires_grad=True)
    mix_features(x, Partners(torch.tensor([1, 0], device=device)), lam, "efdm").square().sum().backward()
    assert lam.grad.abs().min() > 0


@pytest.mark.parametrize("shape", [(4, 64, 32, 32), (4, 4, 8, 8)], ids=["large", "small"])
def test_gradient_of_channels_last_features(shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.randn(shape, device=device).contiguous(memory_format=torch.channels_last)
    weights = torch.randn(shape, device=device)
    for match in (efdm, histogram_match):
        actual, expected = x.clone().requires_grad_(), x.contiguous().requires_grad_()
        for content in (actual, expected):
            (match(content, content.flip(0), style_grad="flow") * weights).sum().backward()
        close(actual.grad, expected.grad)


def test_vmap_over_styles_with_channels_last_content(device: torch.device) -> None:
    x = torch.randn(2, 3, 8, 8, device=device).contiguous(memory_format=torch.channels_last)
    styles = torch.randn(5, 2, 3, 8, 8, device=device)
    assert torch.equal(torch.vmap(lambda y: efdm(x, y))(styles), torch.stack([efdm(x, y) for y in styles]))


def test_prepared_style_does_not_cache_transformed_tensors() -> None:
    style, x = prepare(torch.randn(1, 3, 20)), torch.randn(1, 3, 7)
    torch.func.grad(lambda c: efdm(c, style).sum())(x)
    assert torch.equal(efdm(x, copy.deepcopy(style)), efdm(x, style))
    assert pickle.loads(pickle.dumps(style))._cache  # cached by the eager call
