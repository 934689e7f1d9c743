"""Joint matching: the joint distribution approaches the style's, with the marginals, masks and gradients of `efdm`."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tolerances import close
from torch import Tensor

from efdm import MATCHERS, Partners, efdm, interpolate_styles, prepare
from efdm.errors import SettingError
from efdm.nn.losses import random_directions, sliced_loss
from efdm.ops import PreparedStyle, match_jointly, match_principal, wct
from efdm.ops.joint import _roots, _rotations

JOINT = [name for name, row in MATCHERS.items() if row.channels == "joint"]


def pair(device: torch.device, n: int = 900, batch: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return a content with independent channels and a style whose channels depend on each other, also beyond covariance."""
    g = torch.Generator().manual_seed(0)
    y = torch.randn(batch, 6, 1, n, generator=g)
    y[:, 1::2] = y[:, ::2].square() + 0.3 * y[:, 1::2]
    return torch.randn(batch, 6, 1, n, generator=g).relu().to(device, dtype), (y + 0.5 * y.roll(1, 1)).to(device, dtype)


def distance(x: Tensor, y: Tensor) -> float:
    directions = random_directions(64, x.shape[1], torch.Generator().manual_seed(9)).to(x.device)
    return sliced_loss(x.float(), y.float(), directions, norm="l1").item()


def ordered(x: Tensor) -> Tensor:
    return x.flatten(2).sort(-1).values


def test_rotations_approach_the_joint_distribution(device: torch.device) -> None:
    x, y = pair(device)
    exact = distance(efdm(x, y), y)
    found = [distance(match_jointly(x, y, rotations=k, start="none"), y) for k in (1, 5, 20)]
    assert exact > found[0] > found[1] > found[2]
    assert found[2] < 0.4 * exact
    assert distance(match_jointly(x, y, finish="none"), y) < 0.4 * exact
    assert distance(match_jointly(x, y, rotations=5, iterations=4, start="none"), y) < found[1]


def test_one_rotation_is_the_definition(device: torch.device) -> None:
    x, y = pair(device)
    turns, back = _rotations(x, 2, None)
    a, b = turns[0], turns[1] @ turns[0]
    rows, style = x.flatten(2), y.flatten(2)
    expected = a.mT @ efdm(a @ rows, a @ style)
    close(match_jointly(x, y, rotations=1, start="none", finish="none").flatten(2), expected)
    expected = b.mT @ efdm(b @ expected, b @ style)
    close(match_jointly(x, y, rotations=2, start="none", finish="none").flatten(2), expected)
    again = a.mT @ efdm(a @ expected, a @ style)
    again = b.mT @ efdm(b @ again, b @ style)
    twice = match_jointly(x, y, rotations=2, iterations=2, start="none", finish="none").flatten(2)
    assert (twice - again).abs().mean() < 1e-4  # roundings may swap ranks
    close(back @ b, torch.eye(6, device=device))


def test_principal_axes_and_steps(device: torch.device) -> None:
    x, y = pair(device, dtype=torch.float64)  # roundings would swap ranks
    plain = partial(match_jointly, x, y, start="none", finish="none")
    close(plain(rotations=1, axes="principal", step=1.5), match_principal(x, y))  # the last match is exact
    turns, back = _rotations(x, 2, None)
    a = turns[0] @ x.flatten(2)
    moved = turns[1] @ torch.lerp(a, efdm(a, turns[0] @ y.flatten(2)), 1.5)
    close(plain(rotations=2, step=1.5).flatten(2), back @ efdm(moved, turns[1] @ turns[0] @ y.flatten(2)))
    axes = torch.linalg.eigh(y.flatten(2)[0].cov())[1]
    first = axes @ efdm(axes.mT @ x.flatten(2), axes.mT @ y.flatten(2))
    close(plain(rotations=2, axes="principal"), match_jointly(first.view_as(x), y, rotations=1, start="none", finish="none"))
    assert torch.equal(plain(rotations=0, axes="principal"), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_last_match_makes_the_channels_exact(dtype: torch.dtype, device: torch.device) -> None:
    x, y = pair(device, batch=2, dtype=dtype)
    assert torch.equal(ordered(match_jointly(x, y)), ordered(y))
    assert torch.equal(ordered(match_jointly(x, prepare(y))), ordered(y))
    assert not torch.equal(ordered(match_jointly(x, y, finish="none")), ordered(y))


def test_no_rotation_is_efdm(device: torch.device) -> None:
    x, y = pair(device)
    assert torch.equal(match_jointly(x, y, rotations=0, start="none"), efdm(x, y))
    assert torch.equal(match_jointly(x, y, iterations=0, start="none"), efdm(x, y))
    assert torch.equal(match_jointly(x, y, rotations=0), efdm(wct(x, y), y))


def test_wct_matches_means_and_covariances(device: torch.device) -> None:
    x, y = pair(device, dtype=torch.float64)
    out = wct(x, y[..., :500], eps=0)
    close(out.mean(-1), y[..., :500].mean(-1))
    close(out[0, :, 0].cov(), y[0, :, 0, :500].cov())


def test_pca_is_exact_along_the_principal_axes_of_the_style(device: torch.device) -> None:
    x, y = pair(device, dtype=torch.float64)
    axes = torch.linalg.eigh(y[0, :, 0].cov())[1]
    actual, expected = (axes.mT @ t[0, :, 0] for t in (match_principal(x, y), y))
    close(actual.sort(-1).values, expected.sort(-1).values)


def test_roots_without_eigenvalues(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = torch.randn(2, 40, 40, dtype=torch.float64) * torch.logspace(-3, 0, 40, dtype=torch.float64)
    factor[1, 0] = 0  # a constant channel
    covariance = factor @ factor.mT
    expected = _roots(covariance, 1e-5)
    monkeypatch.setattr("efdm.kernels.is_exporting", lambda: True)
    for a, b in zip(_roots(covariance, 1e-5), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def alike(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that two results are nearly equal.

    On a GPU, products of matrices of other shapes round differently. Values that are almost equal then exchange their ranks,
    and every further rotation amplifies the difference.
    """
    assert (actual - expected).double().abs().mean() < 0.02 * expected.double().std()


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_forms_of_a_style(name: str, dtype: torch.dtype, device: torch.device) -> None:
    x, y = pair(device, batch=2, dtype=dtype)
    match, style = MATCHERS[name], prepare(y)
    for _ in range(2):  # the second call uses cached values
        alike(match(x, style), match(x, y))
    short = x[..., :700]  # another content size
    alike(match(short, style), match(short, y))
    alike(match(x, Partners([1, 0])), match(x, x.flip(0)))
    alike(match(x, y[:1]), match(x, y[:1].expand_as(y)))
    alike(match(x, style.to(torch.float64).to(dtype)), match(x, y))
    alike(match(x.movedim(1, -1), y.movedim(1, -1), channel_dim=-1).movedim(-1, 1), match(x, y))


@pytest.mark.parametrize("name", JOINT)
def test_masks_equal_selection(name: str, device: torch.device) -> None:
    x, y = pair(device)
    inside, used = torch.zeros(1, 900, dtype=torch.bool), torch.zeros(1, 900, dtype=torch.bool)
    inside[:, 100:500], used[:, 300:] = True, True
    expected = x.clone()
    expected[..., 100:500] = MATCHERS[name](x[..., 100:500], y[..., 300:])
    for style, options in ((y, {"style_mask": used}), (prepare(y, style_mask=used), {})):
        out = MATCHERS[name](x, style, content_mask=inside, **options)
        torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
        assert torch.equal(out[..., 500:], x[..., 500:])
    assert torch.equal(MATCHERS[name](x, y, content_mask=~inside & inside), x)
    assert torch.equal(MATCHERS[name](x, y, style_mask=~used & used), x)


@pytest.mark.parametrize("name", JOINT)
def test_constant_channels_and_few_positions(name: str, device: torch.device) -> None:
    x, y = pair(device)
    x[:, 2], y[:, 3] = 0.3, 0
    for content, style in ((x, y), (x[..., :3], y), (x, y[..., :2]), (torch.full_like(x, 0.3), y), (x[..., :1], y[..., :1])):
        out = MATCHERS[name](content, style)
        assert out.isfinite().all()
        assert out.abs().max() < 100


@pytest.mark.parametrize("name", JOINT)
def test_straight_through_gradient(name: str, device: torch.device) -> None:
    x, y = (t.requires_grad_() for t in pair(device))
    MATCHERS[name](x, y).backward(torch.full_like(x, 2.0))
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
    assert y.grad is None
    assert not MATCHERS[name](x, y, content_grad="stop").requires_grad


@pytest.mark.parametrize("name", JOINT)
def test_compiles_to_one_graph(name: str) -> None:
    torch._dynamo.reset()
    x, y = pair(torch.device("cpu"), n=60)
    compiled = torch.compile(lambda a, b: MATCHERS[name](a, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), MATCHERS[name](x, y), rtol=1e-3, atol=1e-3)


def test_a_generator_draws_the_rotations(device: torch.device) -> None:
    x, y = pair(device)
    style = prepare(y)
    made = [match_jointly(x, style, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert torch.equal(match_jointly(x, style), match_jointly(x, style))


def test_several_styles(device: torch.device) -> None:
    x, y = pair(device)
    close(interpolate_styles(x, [y, prepare(x)], [1, 1], method="joint"), (match_jointly(x, y) + match_jointly(x, x)) / 2)


def test_autocast_does_not_rotate_in_half_precision(device: torch.device) -> None:
    x, y = pair(device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        inside = match_jointly(x, y, finish="none")
    close(inside, match_jointly(x, y, finish="none"))


def test_invalid_arguments() -> None:
    x, y = pair(torch.device("cpu"), n=20)
    with pytest.raises(SettingError, match="start='pca' is not one of 'wct', 'none'"):
        match_jointly(x, y, start="pca")
    with pytest.raises(SettingError, match="finish"):
        match_jointly(x, y, finish="rotation")
    with pytest.raises(ValueError, match="step must be between 0 and 2, got 2"):
        match_jointly(x, y, step=2)
    with pytest.raises(ValueError, match="rotations and iterations must be >= 0, got -1 and 1"):
        match_jointly(x, y, rotations=-1)
    with pytest.raises(ValueError, match=r"not only sorted values; use efdm.prepare"):
        wct(x, PreparedStyle(ordered(y)))
    with pytest.raises(ValueError, match="style has 5 channels, content has 6"):
        match_jointly(x, y[:, :5])
