"""Colour preservation."""

import pytest
import torch
from torch import Tensor

from efdm.style.color import keep_hue, luminance, recolor


def moments(picture: Tensor) -> tuple[Tensor, Tensor]:
    pixels = picture.flatten(1).double()
    return pixels.mean(1), torch.cov(pixels, correction=0)


def muted(seed: int, tint: tuple[float, float, float]) -> Tensor:
    """Correlated colours far from 0 and 1, so that nothing is clamped."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.randn(3, 3, generator=generator) * 0.06
    noise = torch.rand(3, 30 * 40, generator=generator) - 0.5
    return (turn @ noise + torch.tensor(tint)[:, None]).reshape(1, 3, 30, 40)


def test_recolored_style_has_mean_and_covariance_of_the_content() -> None:
    content, style = muted(1, (0.6, 0.5, 0.4)), muted(2, (0.4, 0.4, 0.55))
    made = recolor(style, content)
    for got, expected in zip(moments(made[0]), moments(content[0]), strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=5e-6)


def test_recoloring_with_itself_is_the_identity() -> None:
    style = muted(3, (0.5, 0.4, 0.6))
    torch.testing.assert_close(recolor(style, style), style, rtol=0, atol=1e-5)


def test_one_style_for_each_content_of_a_batch() -> None:
    contents = torch.cat([muted(1, (0.6, 0.5, 0.4)), muted(4, (0.3, 0.5, 0.5))])
    made = recolor(muted(2, (0.5, 0.5, 0.5)), contents)
    assert made.shape == (2, 3, 30, 40)
    torch.testing.assert_close(made.mean((2, 3)), contents.mean((2, 3)), rtol=0, atol=1e-4)


def test_masks_select_pixels() -> None:
    content = torch.cat([muted(1, (0.6, 0.5, 0.4)), muted(4, (0.2, 0.5, 0.5))], 3)
    left = torch.zeros(30, 80, dtype=torch.bool)
    left[:, :40] = True
    style = muted(2, (0.5, 0.5, 0.5))
    torch.testing.assert_close(recolor(style, content, content_mask=left), recolor(style, content[..., :40]))


@pytest.mark.parametrize(
    "style", [torch.full((1, 3, 8, 8), 0.5), torch.rand(1, 1, 8, 8).expand(1, 3, 8, 8)], ids=["flat", "grey"]
)
def test_styles_without_colour_stay_finite(style: Tensor) -> None:
    made = recolor(style, torch.rand(1, 3, 9, 9))
    assert made.isfinite().all()
    assert made.min() >= 0
    assert made.max() <= 1


def test_keep_hue_preserves_luminance_and_channel_differences() -> None:
    content, output = 0.4 + 0.2 * torch.rand(2, 1, 3, 6, 6)
    made = keep_hue(output, content)
    torch.testing.assert_close(luminance(made), luminance(output))
    torch.testing.assert_close(made[:, 0] - made[:, 1], content[:, 0] - content[:, 1])
