"""Paintings: the same each time, each its own, and of the size asked for."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data.brush import Brush, canvas, inks, lay, picture, ramp, towards
from efdm.data.paint import STYLES, paint

SIZE = 96


@pytest.fixture(scope="module")
def paintings() -> dict[str, Tensor]:
    return {name: paint(name, SIZE) for name in STYLES}


def colours(painting: Tensor) -> Tensor:
    """A palette without places: the sorted values of each channel, blurred a little by thinning out."""
    return painting.flatten(1).sort(-1).values[:, :: SIZE // 8]


def test_there_are_at_least_ten_styles() -> None:
    assert len(STYLES) >= 10


@pytest.mark.parametrize("name", STYLES)
def test_is_a_picture_with_contrast(name: str, paintings: dict[str, Tensor]) -> None:
    painting = paintings[name]
    assert painting.shape == (3, SIZE, SIZE)
    assert painting.dtype == torch.float32
    assert painting.is_contiguous()
    assert torch.isfinite(painting).all()
    assert painting.min() >= 0
    assert painting.max() <= 1
    assert painting.std() > 0.1


@pytest.mark.parametrize("name", STYLES)
def test_the_same_seed_paints_the_same_picture(name: str, paintings: dict[str, Tensor]) -> None:
    np.random.seed(3)  # noqa: NPY002 - the global generator must not matter
    assert torch.equal(paint(name, SIZE), paintings[name])


@pytest.mark.parametrize("name", STYLES)
def test_another_seed_paints_another_picture(name: str, paintings: dict[str, Tensor]) -> None:
    assert (paint(name, SIZE, seed=1) - paintings[name]).abs().mean() > 0.01


@pytest.mark.parametrize("name", STYLES)
def test_has_texture_at_the_scale_of_brushes(name: str, paintings: dict[str, Tensor]) -> None:
    """What a blur of a few pixels takes away is a good part of the picture: not flat shapes, not a gradient."""
    painting = paintings[name]
    smooth = F.avg_pool2d(painting[None], 5, stride=1, padding=2, count_include_pad=False)[0]
    assert (painting - smooth).std() > 0.02


@pytest.mark.parametrize("size", [16, 33, 75])
@pytest.mark.parametrize("name", STYLES)
def test_paints_odd_and_small_sizes(name: str, size: int) -> None:
    painting = paint(name, size)
    assert painting.shape == (3, size, size)
    assert torch.isfinite(painting).all()


def test_the_styles_differ_in_colour_as_well_as_in_place(paintings: dict[str, Tensor]) -> None:
    for one, other in combinations(STYLES, 2):
        assert (paintings[one] - paintings[other]).abs().mean() > 0.1, (one, other)
        assert (colours(paintings[one]) - colours(paintings[other])).abs().mean() > 0.02, (one, other)


def test_another_size_is_much_the_same_picture(paintings: dict[str, Tensor]) -> None:
    """Compositions live in the unit square: a shrunken large picture resembles the small one."""
    large = F.interpolate(paint("bauhaus", 2 * SIZE)[None], (SIZE, SIZE), mode="area")[0]
    assert (large - paintings["bauhaus"]).abs().mean() < 0.05


def test_says_which_styles_there_are() -> None:
    with pytest.raises(ValueError, match="starry"):
        paint("rococo")


def test_refuses_a_size_too_small_to_paint() -> None:
    with pytest.raises(ValueError, match="16 or more"):
        paint("starry", 8)


def test_a_later_stroke_lies_on_top() -> None:
    on = canvas(64, inks("ffffff")[0])
    middle = np.full((2, 2), 0.5, np.float32)
    lay(
        on,
        np.random.default_rng(0),
        Brush(200, 120, dry=0, streak=0),
        towards(np.zeros((64, 64))),
        middle,
        inks("ff0000 0000ff"),
    )
    assert np.allclose(picture(on)[:, 32, 32], [0, 0, 1])


def test_a_stroke_lies_where_it_was_put_and_along_the_flow() -> None:
    on = canvas(64, inks("ffffff")[0])
    upwards, place = towards(np.full((64, 64), np.pi / 2)), np.array([[0.7, 0.25]])
    lay(on, np.random.default_rng(0), Brush(200, 60, dry=-1, streak=0), upwards, place, inks("000000"))
    dark = 1 - picture(on)[0]
    y, x = np.nonzero(dark > 0.5)
    assert abs(y.mean() - 0.7 * 64) < 1
    assert abs(x.mean() - 0.25 * 64) < 1
    assert np.ptp(y) > 2 * np.ptp(x)


def test_a_stroke_leaves_no_holes_when_turned() -> None:
    """Strokes are laid as grids of samples; at any angle they must meet every pixel."""
    for angle in (0.0, 0.4, np.pi / 4, 1.3):
        on = canvas(128, inks("ffffff")[0])
        flow = towards(np.full((128, 128), angle))
        lay(on, np.random.default_rng(0), Brush(300, 200, dry=-1, streak=0), flow, np.full((1, 2), 0.5), inks("000000"))
        assert picture(on)[:, 54:74, 54:74].max() == 0, angle


def test_a_ramp_passes_through_its_colours() -> None:
    palette = inks("102030 ffffff 000000")
    assert np.allclose(ramp(np.array([0, 0.5, 1]), palette), palette)
