from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from oracle import efdm_row, interpolated
from tolerances import close
from torch import Tensor

from efdm.nn.losses import (
    NORMS,
    STYLE_LOSSES,
    distribution_loss,
    gram,
    histogram_loss,
    likeness_loss,
    moments_loss,
    random_directions,
    sliced_loss,
    unit_distances,
)
from efdm.ops import MATCHERS, adain

SHAPE = (2, 3, 5, 7)
DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": lambda d: d**2,
    "l1": lambda d: d.abs(),
    "huber": lambda d: torch.where(d.abs() < 0.1, d**2 / 0.2, d.abs() - 0.05),
}


def sorted_rows(features: Tensor) -> Tensor:
    return features.flatten(2).sort(-1).values


@pytest.mark.parametrize("norm", NORMS)
def test_distance_of_sorted_values(norm: str, device: torch.device) -> None:
    x, y = torch.randn(SHAPE, device=device), 2 * torch.rand(SHAPE, device=device)
    expected = DISTANCES[norm](sorted_rows(x) - sorted_rows(y)).mean()
    close(distribution_loss(x, y, norm=norm), expected)


def test_a_style_of_another_size_is_interpolated_at_mid_ranks() -> None:
    x, y = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 3, 2)
    rows = zip(x.flatten(2)[0].tolist(), y.flatten(2)[0].tolist(), strict=True)
    matched = torch.tensor([efdm_row(a, interpolated(b, 16)) for a, b in rows])
    close(distribution_loss(x, y), F.mse_loss(x.flatten(2)[0], matched))


def test_one_style_for_a_batch() -> None:
    x, y = torch.randn(SHAPE), torch.randn(1, *SHAPE[1:])
    close(distribution_loss(x, y), distribution_loss(x, y.expand(SHAPE)))


@pytest.mark.parametrize("unit", ["value", "spread"])
@pytest.mark.parametrize("norm", NORMS)
def test_equal_distributions_have_no_loss(norm: str, unit: str) -> None:
    x = torch.randn(SHAPE)
    shuffled = x.flatten(2)[..., torch.randperm(35)].view(SHAPE)
    assert distribution_loss(x, shuffled, norm=norm, unit=unit) == 0
    assert distribution_loss(x, shuffled + 1, norm=norm, unit=unit) > 0.1


@pytest.mark.parametrize(
    ("norm", "slope"), [("l2", lambda d: 2 * d), ("l1", torch.sign), ("huber", lambda d: (d / 0.1).clamp(-1, 1))]
)
def test_the_gradient_points_to_the_matched_features(norm: str, slope: Callable[[Tensor], Tensor]) -> None:
    x, y = torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE, requires_grad=True)
    distribution_loss(x, y, norm=norm).backward()
    matched = MATCHERS["efdm"](x.detach(), y.detach())
    assert x.grad is not None
    close(x.grad, slope(x.detach() - matched) / x.numel())
    assert y.grad is None


def test_the_unit_spread_is_invariant_to_scale() -> None:
    x, y = torch.randn(SHAPE), torch.randn(SHAPE)
    loss = distribution_loss(x, y, unit="spread")
    close(distribution_loss(100 * x, 100 * y, unit="spread"), loss)
    close(distribution_loss(x / 100, y / 100, unit="spread"), loss)
    assert distribution_loss(100 * x, 100 * y) > 1000 * loss


def test_the_unit_spread_balances_channels_except_constant_ones() -> None:
    y = torch.randn(1, 3, 400)
    x = y + torch.tensor([0.5, 0.0, 0.0]).view(3, 1)
    plain = distribution_loss(x, y, unit="spread")
    weak = torch.tensor([0.5, 1.0, 1.0]).view(3, 1)
    torch.testing.assert_close(distribution_loss(x * weak, y * weak, unit="spread"), plain, rtol=0.05, atol=0)
    dead = torch.tensor([1e-4, 1.0, 1.0]).view(3, 1)
    assert distribution_loss(x * dead, y * dead, unit="spread") < 1e-3 * plain


@pytest.mark.parametrize("norm", NORMS)
def test_slices_along_the_channels_equal_the_distribution_loss(norm: str) -> None:
    x, y = torch.randn(SHAPE), torch.randn(2, 3, 4, 6)
    close(sliced_loss(x, y, torch.eye(3), norm=norm), distribution_loss(x, y, norm=norm))


def test_slices_measure_the_joint_distribution() -> None:
    """Both channels have equal distributions, but are correlated in one image and anticorrelated in the other."""
    a = torch.randn(1, 1, 100)
    x, y = torch.cat([a, a], 1), torch.cat([a, -a], 1)
    y = torch.cat([y[:, :1], MATCHERS["efdm"](y[:, 1:], a)], 1)
    assert distribution_loss(x, y) == 0
    assert sliced_loss(x, y, F.normalize(torch.tensor([[1.0, 1.0]]))) > 0.5


def test_slices_have_a_gradient_to_the_features_only() -> None:
    x, y = torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE, requires_grad=True)
    sliced_loss(x, y, random_directions(8, 3), unit="spread").backward()
    assert x.grad is not None
    assert x.grad.abs().max() > 0
    assert y.grad is None


def test_random_directions_are_uniform_unit_vectors() -> None:
    drawn = random_directions(4000, 3, torch.Generator().manual_seed(0))
    close(drawn.norm(dim=1), torch.ones(4000))
    torch.testing.assert_close(drawn.T @ drawn / 4000, torch.eye(3) / 3, rtol=0, atol=0.03)
    assert torch.equal(drawn, random_directions(4000, 3, torch.Generator().manual_seed(0)))


# --- losses of the matchers ------------------------------------------------------------------------------------------------


def test_every_matcher_of_separate_channels_has_a_loss() -> None:
    assert set(STYLE_LOSSES) == {name for name, row in MATCHERS.items() if row.channels == "separate"}


@pytest.mark.parametrize("name", STYLE_LOSSES)
def test_matched_features_have_no_loss(name: str) -> None:
    x, y = torch.randn(2, 3, 12, 12), 2 + 3 * torch.rand(2, 3, 12, 12)
    before = STYLE_LOSSES[name](x, y)
    after = STYLE_LOSSES[name](MATCHERS[name](x, y), y)
    assert after < 1e-4 * before


@pytest.mark.parametrize("name", STYLE_LOSSES)
def test_a_gradient_step_reduces_the_loss_for_a_style_of_another_size(name: str) -> None:
    y = 1 + 2 * torch.rand(2, 3, 6, 6)
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    before = STYLE_LOSSES[name](x, y)
    (slope,) = torch.autograd.grad(before, x)
    assert STYLE_LOSSES[name](x.detach() - slope / slope.square().sum() * 0.01 * before.detach(), y) < before


def test_moments_loss_sums_means_and_deviations() -> None:
    x, y = torch.randn(SHAPE), torch.randn(SHAPE)
    means = F.mse_loss(x.mean((2, 3)), y.mean((2, 3)))
    deviations = F.mse_loss((x.var((2, 3)) + 1e-5).sqrt(), (y.var((2, 3)) + 1e-5).sqrt())
    close(moments_loss(x, y, moments=("mean",)), means)
    close(moments_loss(x, y, moments=("std",)), deviations)
    close(moments_loss(x, y), means + deviations)
    assert moments_loss(adain(x, y), y) < 1e-8


def test_the_histogram_loss_is_the_distance_to_the_matched_histogram() -> None:
    x, y = torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE)
    matched = MATCHERS["hm"](x.detach(), y)
    loss = histogram_loss(x, y)
    loss.backward()
    close(loss.detach(), F.mse_loss(x.detach(), matched))
    assert x.grad is not None
    close(x.grad, 2 * (x.detach() - matched) / x.numel())


# --- other losses ----------------------------------------------------------------------------------------------------------


def test_gram_matrices_are_mean_products() -> None:
    x = torch.randn(SHAPE)
    expected = [[[(x[b, i] * x[b, j]).mean() for j in range(3)] for i in range(3)] for b in range(2)]
    close(gram(x), torch.tensor(expected))


def test_unit_distances_have_a_finite_gradient_at_zero() -> None:
    dead, live = torch.zeros(1, 3, 4, requires_grad=True), torch.randn(1, 3, 4)
    far = unit_distances(dead, live)
    close(far.sum(1), torch.ones(1, 4))
    far.sum().backward()
    assert dead.grad is not None
    assert dead.grad.isfinite().all()


def test_likeness_depends_on_direction_only() -> None:
    x = torch.randn(SHAPE)
    assert likeness_loss(x, 3 * x) < 1e-10
    close(likeness_loss(x, -x), torch.tensor(4.0))
    a, b = torch.tensor([1.0, 0.0]).view(1, 2, 1), torch.tensor([0.0, 5.0]).view(1, 2, 1)
    close(likeness_loss(a, b), torch.tensor(2.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "l3"}, "norm='l3' is not one of 'l2', 'l1', 'huber'"),
        ({"unit": "spreads"}, "unit='spreads' is not one of 'value', 'spread'; did you mean 'spread'?"),
    ],
)
def test_wrong_choices(options: dict[str, str], message: str) -> None:
    x = torch.randn(SHAPE)
    for call in (lambda: distribution_loss(x, x, **options), lambda: sliced_loss(x, x, torch.eye(3), **options)):
        with pytest.raises(ValueError, match="is not one of") as caught:
            call()
        assert message in str(caught.value)


# --- dtypes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16"), ("float32", "float64")], ids=str)
@pytest.mark.parametrize("name", [*STYLE_LOSSES, "sliced"])
def test_a_style_is_converted_to_the_dtype_of_the_features(name: str, types: tuple[str, str]) -> None:
    loss = {**STYLE_LOSSES, "sliced": partial(sliced_loss, directions=torch.eye(3))}[name]
    x, y = torch.randn(2, 3, 20, 40).to(getattr(torch, types[0])), torch.rand(2, 3, 20, 40).to(getattr(torch, types[1]))
    assert loss(x, y) == loss(x, y.to(x.dtype))


@pytest.mark.parametrize("name", STYLE_LOSSES)
def test_a_single_position(name: str) -> None:
    x, y = torch.randn(2, 3, 1, 1, requires_grad=True), torch.randn(2, 3, 1, 1)
    loss = STYLE_LOSSES[name](x, y)
    loss.backward()
    assert loss.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_half_precision_neither_underflows_nor_overflows() -> None:
    nothing = torch.zeros(1, 3, 8, 8, dtype=torch.float16)
    assert distribution_loss(nothing, nothing, unit="spread") == 0
    assert sliced_loss(nothing, nothing, torch.eye(3), unit="spread") == 0
    bright = torch.full((1, 3, 64, 64), 20.0)
    close(gram(bright.half()), gram(bright))
    with torch.autocast("cpu", torch.float16):
        close(gram(bright), torch.full((1, 3, 3), 400.0))
