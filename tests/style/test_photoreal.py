"""Photo-realistic filters."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.style.photoreal import PHOTOREAL, _box

FILTERS = [name for name in PHOTOREAL if name != "none"]


def photo(h: int = 96, w: int = 128) -> Tensor:
    """A smooth gradient with a vertical edge and a diagonal line."""
    y, x = torch.meshgrid(torch.linspace(0, 1, h), torch.linspace(0, 1, w), indexing="ij")
    picture = torch.stack([0.2 + 0.3 * x, 0.6 - 0.3 * y, 0.3 + 0.2 * x * y])
    picture[:, :, w // 2 :] += 0.25
    picture[:, (y - x).abs() < 0.01] = 0.9
    return picture[None]


@pytest.mark.parametrize("name", PHOTOREAL)
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 2), (33, 50)], ids=str)
def test_output_has_the_size_of_the_content(name: str, size: tuple[int, int]) -> None:
    made = PHOTOREAL[name](torch.rand(2, 3, *size), torch.rand(2, 3, 17, 12))
    assert made.shape == (2, 3, *size)
    assert made.isfinite().all()
    assert made.min() >= 0
    assert made.max() <= 1


@pytest.mark.parametrize("name", FILTERS)
def test_colour_changes_are_transferred(name: str) -> None:
    content = photo()
    turned = 0.1 + 0.7 * content[:, [1, 2, 0]]
    assert (PHOTOREAL[name](content, turned) - turned).abs().mean() < 0.015


@pytest.mark.parametrize("name", FILTERS)
def test_strokes_and_blur_are_removed(name: str) -> None:
    content = photo()
    wanted = 0.1 + 0.7 * content[:, [1, 2, 0]]
    painted = F.avg_pool2d(wanted, 7, 1, 3, count_include_pad=False) + 0.1 * torch.randn(wanted.shape)
    painted = painted.clamp(0, 1)
    made = PHOTOREAL[name](content, painted)
    assert (made - wanted).abs().mean() < 0.4 * (painted - wanted).abs().mean()
    # the edge stays sharp: its step between two pixels is nearly that of the clean image
    step = [(p[..., :30, 64] - p[..., :30, 63]).abs().mean() for p in (made, wanted, painted)]
    assert step[0] > 0.6 * step[1]


@pytest.mark.parametrize("name", FILTERS)
def test_stylized_image_may_be_smaller(name: str) -> None:
    content = photo(200, 260)
    turned = 0.9 - 0.7 * content
    small = F.interpolate(turned, (50, 65), mode="bilinear", antialias=True)
    made = PHOTOREAL[name](content, small)
    enlarged = PHOTOREAL["none"](content, small)
    assert (made - turned).abs().mean() < 0.7 * (enlarged - turned).abs().mean()


def test_strips_leave_no_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    content, stylized = torch.rand(1, 3, 40, 30), torch.rand(1, 3, 40, 30)
    whole = [PHOTOREAL[name](content, stylized) for name in FILTERS]
    monkeypatch.setattr("efdm.style.photoreal.ROWS", 7)
    for name, expected in zip(FILTERS, whole, strict=True):
        torch.testing.assert_close(PHOTOREAL[name](content, stylized), expected, rtol=0, atol=1e-5)


def test_windows_are_clipped_at_the_border() -> None:
    x = torch.rand(1, 2, 9, 6)
    expected = F.avg_pool2d(x, 5, 1, 2, count_include_pad=False)
    torch.testing.assert_close(_box(x, 2), expected)
