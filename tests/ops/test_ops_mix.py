"""`blend`, `mix_features`, `efdmix` and `interpolate_styles`."""

from __future__ import annotations

import math

import pytest
import torch
from tolerances import DTYPES, close

from efdm import MATCHERS, Partners, blend, efdm, efdmix, interpolate_styles, prepare
from efdm.ops import mix_features


def test_blend_is_exact_at_the_ends(device: torch.device) -> None:
    for dtype in DTYPES:
        x, m = torch.randn(3, 2, 50, device=device).to(dtype), torch.randn(3, 2, 50, device=device).to(dtype)
        x[0, 0, 0] = m[0, 0, 0] = math.inf
        out = blend(x, m, torch.tensor([0.0, 1.0, 0.25], device=device))
        assert torch.equal(out[0], x[0])
        assert torch.equal(out[1], m[1])
        close(out[2], (0.75 * x[2].double() + 0.25 * m[2].double()).to(dtype))
        assert torch.equal(blend(x, m, 1), m)
        assert torch.equal(blend(x, m, 0.0), x)


def test_blend_gradient(device: torch.device) -> None:
    x, m = (torch.randn(2, 3, 4, device=device, requires_grad=True) for _ in range(2))
    blend(x, m, torch.tensor([0.25, 1.0], device=device)).sum().backward()
    assert x.grad[:, 0, 0].tolist() == [0.75, 0.0]
    assert m.grad[:, 0, 0].tolist() == [0.25, 1.0]


@pytest.mark.parametrize(
    ("strength", "message"),
    [
        (1.5, "strength .* got 1.5"),
        (-0.1, "strength .* got -0.1"),
        (torch.rand(5), r"strength has shape \(5,\)"),
        (torch.rand(2, 1), r"strength has shape \(2, 1\)"),
    ],
)
def test_invalid_strength(strength: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blend(torch.rand(2, 3, 4), torch.rand(2, 3, 4), strength)


@pytest.mark.parametrize("types", [(torch.int64, torch.int64), (torch.float16, torch.float32)], ids=str)
def test_blend_of_invalid_dtypes(types: tuple[torch.dtype, torch.dtype]) -> None:
    x, m = (torch.ones(1, 1, 2, dtype=t) for t in types)
    for strength in (0, 0.5, 1):
        with pytest.raises(TypeError, match=f"content is {types[0]}, matched is {types[1]}"):
            blend(x, m, strength)


def test_blend_of_different_shapes() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3, 4\), matched has \(2, 3, 5\)"):
        blend(torch.rand(2, 3, 4), torch.rand(2, 3, 5), 0.5)


@pytest.mark.parametrize("name", MATCHERS)
def test_mix_features_blends_the_match(name: str, device: torch.device) -> None:
    x, y = torch.randn(3, 2, 5, 4, device=device), torch.randn(3, 2, 5, 4, device=device)
    lam = torch.tensor([0.2, 0.5, 1.0], device=device)
    row = MATCHERS[name]
    close(mix_features(x, y, lam, name), blend(x, row(x, y, **row.augmentation), 1 - lam))
    assert torch.equal(mix_features(x, y, lam, name)[2], x[2])


def test_unknown_method_lists_the_matchers() -> None:
    with pytest.raises(ValueError, match="'efdm', 'adain', 'adamean', 'adastd', 'hm', 'joint'"):
        mix_features(torch.rand(1, 1, 3), torch.rand(1, 1, 3), 0.5, "gatys")


def test_interpolate_styles(device: torch.device) -> None:
    x, a, b = (torch.randn(1, 3, 6, 6, device=device) for _ in range(3))
    close(interpolate_styles(x, [a, prepare(b)], [1, 3]), 0.25 * efdm(x, a) + 0.75 * efdm(x, b))
    assert torch.equal(interpolate_styles(x, [a, b], [0, 2]), efdm(x, b))
    close(
        interpolate_styles(x, [a, b], torch.tensor([0.5, 0.5]), method="adain"),
        (MATCHERS["adain"](x, a) + MATCHERS["adain"](x, b)) / 2,
    )


@pytest.mark.parametrize(
    ("styles", "weights", "message"),
    [
        (1, [0.5, 0.5], "1 styles and 2 weights"),
        (2, [0, 0], "not all zero"),
        (2, [-1, 2], "non-negative"),
        (2, [math.inf, 1], "finite"),
        (2, [1, math.nan], "finite"),
        (0, [], "at least one"),
    ],
)
def test_invalid_weights(styles: int, weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interpolate_styles(torch.rand(1, 1, 4), [torch.rand(1, 1, 4)] * styles, weights)


@pytest.mark.parametrize(
    "options", [{}, {"ties": "stable"}, {"ties": "neighbor"}, {"style_grad": "flow"}, {"channel_dim": -1}], ids=str
)
def test_efdmix_with_partners(options: dict, device: torch.device) -> None:
    x = torch.randn(4, 3, 5, 6, device=device).relu()
    index, lam = torch.tensor([2, 0, 3, 3], device=device), torch.tensor([0.0, 0.3, 0.8, 1.0], device=device)
    close(mix_features(x, Partners(index), lam, "efdm", **options), mix_features(x, x[index], lam, "efdm", **options))
    close(mix_features(x, Partners(index), 0.4, "efdm", **options), mix_features(x, x[index], 0.4, "efdm", **options))
    last = x.contiguous(memory_format=torch.channels_last)
    assert mix_features(last, Partners(index), lam, "efdm").is_contiguous(memory_format=torch.channels_last)


MOMENTS = [
    ("adain", {}), ("adain", {"channel_dim": -1}), ("adain", {"style_grad": "flow", "content_stats": "flow"}),
    ("adain", {"content_stats": "flow", "eps": 1e-3}), ("adamean", {}), ("adastd", {}), ("adastd", {"mean": "scaled"}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "options"), MOMENTS, ids=str)
def test_moments_with_partners(method: str, options: dict, device: torch.device) -> None:
    index, lam = torch.tensor([2, 0, 3, 3], device=device), torch.tensor([0.0, 0.3, 0.8, 1.0], device=device).double()
    scale = torch.tensor([1.0, 5, 0.2], device=device)[:, None, None]
    x = torch.randn(4, 3, 5, 6, device=device, dtype=torch.float64) * scale
    for weight in (lam, 0.4):
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        actual = mix_features(a, Partners(index), weight, method, **options)
        expected = mix_features(b, b[index], weight, method, **options)
        close(actual, expected)
        g = torch.randn_like(actual)
        actual.backward(g)
        expected.backward(g)
        close(a.grad, b.grad)


def test_infinite_partners_do_not_affect_samples_of_weight_zero(device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(3, 2, 4, 4, device=device).to(dtype).contiguous(memory_format=torch.channels_last)
        x[1, 0, 0, 0] = torch.inf
        index, lam = torch.tensor([1, 0, 0], device=device), torch.tensor([1.0, 1.0, 0.5], device=device)
        out = mix_features(x, Partners(index), lam, "adain")
        assert torch.equal(out[:2], x[:2])
        assert out[2].isfinite().all()
        assert out.dtype == dtype
        assert out.is_contiguous(memory_format=torch.channels_last)


def test_blend_gradient_of_equal_values(device: torch.device) -> None:
    x = torch.tensor([[[0.0, 1.0]]], device=device, requires_grad=True)
    y = torch.tensor([[[0.0, 2.0]]], device=device, requires_grad=True)
    for strength in (0.25, torch.tensor([0.25], device=device)):
        x.grad = y.grad = None
        blend(x, y, strength).sum().backward()
        assert x.grad.tolist() == [[[0.75, 0.75]]]
        assert y.grad.tolist() == [[[0.25, 0.25]]]
    z = torch.randn(2, 1, 8, device=device).relu().requires_grad_()
    efdmix(z, z.flip(0), 0.25, style_grad="flow").sum().backward()
    close(z.grad, torch.full_like(z, 1.75))


def test_blend_precision_and_signed_zeros(device: torch.device) -> None:
    zero, one = (
        torch.zeros(1, 1, 1, dtype=torch.float64, device=device),
        torch.ones(1, 1, 1, dtype=torch.float64, device=device),
    )
    assert blend(zero, one, 0.1).item() == pytest.approx(0.1, abs=1e-16)
    assert blend(torch.zeros(1, 1, 1), -torch.zeros(1, 1, 1), torch.ones(1)).signbit().item()
    infinite = torch.full((1, 1, 1), math.inf)
    for weight in (0.0, 0.5, 1.0):
        assert blend(infinite, infinite, torch.nn.Parameter(torch.tensor([weight]))).item() == math.inf


@pytest.mark.parametrize(
    ("method", "options", "error", "message"),
    [
        ("adamean", {"mean": "content"}, TypeError, "adamean has no option 'mean'.* style_grad,"),
        ("adain", {"ties": "stable"}, TypeError, "adain has no option 'ties'"),
        ("adastd", {"mean": "bogus"}, ValueError, "mean='bogus' is not one of 'scaled', 'content'"),
        ("efdm", {"ties": "nonsense"}, ValueError, "ties='nonsense' is not one of"),
        ("efdm", {"content_grad": "stop"}, TypeError, "efdm has no option 'content_grad'"),
    ],
)
def test_invalid_options(method: str, options: dict, error: type, message: str) -> None:
    x = torch.randn(2, 3, 8)
    for style in (x.flip(0), Partners([1, 0])):
        for lam in (0.5, 1):
            with pytest.raises(error, match=message):
                mix_features(x, style, lam, method, **options)


def test_invalid_weight_is_named() -> None:
    x = torch.randn(2, 3, 8)
    for style in (x.flip(0), Partners([1, 0])):
        with pytest.raises(ValueError, match=r"lam has shape \(3,\); expected a number or \(2,\)"):
            efdmix(x, style, torch.rand(3))
        for lam in ([0.5, 0.5], "0.5", None):
            with pytest.raises(TypeError, match=f"lam must be a number .* got {type(lam).__name__}"):
                efdmix(x, style, lam)
    with pytest.raises(TypeError, match=r"strength must be a number .* got tuple"):
        blend(x, x, (0.5, 0.5))


def test_interpolation_of_equal_styles() -> None:
    for dtype in DTYPES:
        x, y = torch.randn(1, 3, 300).to(dtype), torch.randn(1, 3, 300).to(dtype)
        out = interpolate_styles(x, [y, y, y], [0.3, 0.3, 0.4])
        assert out.dtype == dtype
        close(out, efdm(x, y)) if dtype.itemsize > 2 else torch.testing.assert_close(out, efdm(x, y), rtol=0, atol=0)
