"""Strength from the photo to the style, its automatic value, and larger strokes."""

from typing import get_args

import pytest
import torch
from clips import clip
from torch import Tensor

from efdm.data import resize
from efdm.errors import SettingError
from efdm.style.look import EMPTY_STRENGTH, Look
from efdm.style.options import Temporal
from efdm.style.pipeline import FADE, run_network
from efdm.style.stylizer import REFINEMENT, Stylizer
from efdm.style.video import stylize_frames


@pytest.fixture(scope="module")
def look(stylizer: Stylizer) -> Look:
    return stylizer.prepare(torch.rand(3, 40, 40))


def drawing(share: float) -> Tensor:
    """Return white paper with black lines on a ``share`` of it."""
    paper = torch.ones(3, 40, 50)
    paper[..., : round(50 * share)] = 0
    return paper


@pytest.mark.parametrize(
    "options", [{}, {"size": 16}, {"preserve_color": "luminance"}, {"photoreal": "guided"}, {"stroke": 2}], ids=str
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_strength_0_is_the_photo(stylizer: Stylizer, precision: str, options: dict) -> None:
    model = Stylizer(stylizer.network, "cpu", precision=precision)
    content = torch.rand(3, 33, 47)
    assert torch.equal(model.stylize(content, torch.rand(3, 30, 30), strength=0, **options), content)


@pytest.mark.parametrize("temporal", get_args(Temporal))
def test_strength_0_is_every_frame(stylizer: Stylizer, look: Look, temporal: str) -> None:
    frames = clip("pan", frames=3, size=(48, 64)).frames
    for frame, made in zip(frames, stylize_frames(stylizer, frames, look, strength=0, temporal=temporal), strict=True):
        assert torch.equal(made, frame)


def test_the_result_is_continuous_in_strength(stylizer: Stylizer, look: Look) -> None:
    content = torch.rand(3, 32, 32)
    for strength in (0.0, FADE, 1.0):
        other = abs(strength - 1e-4)
        off = stylizer.stylize(content, look, strength=strength) - stylizer.stylize(content, look, strength=other)
        assert off.abs().max() < 1e-2


def test_strengths_of_a_batch_fade_one_by_one(stylizer: Stylizer, look: Look) -> None:
    contents, strengths = torch.rand(3, 3, 24, 24), torch.tensor([0.0, 0.1, 0.5])
    made = stylizer.stylize(contents, look, strength=strengths)
    assert torch.equal(made[0], contents[0])
    for one, content, strength in zip(made, contents, strengths.tolist(), strict=True):
        assert torch.allclose(one, stylizer.stylize(content, look, strength=strength), atol=2e-2)


def test_nearly_empty_styles_have_a_lower_strength(stylizer: Stylizer) -> None:
    strengths = [stylizer.prepare(drawing(share)).strength for share in (0.5, 0.2, 0.1, 0.04, 0.0)]
    assert strengths[:2] == [1.0, 1.0]
    assert sorted(strengths[1:], reverse=True) == strengths[1:]
    assert strengths[-1] == pytest.approx(EMPTY_STRENGTH)
    assert len(set(strengths[1:])) == 4


def test_automatic_strength(stylizer: Stylizer) -> None:
    content, style = torch.rand(3, 32, 32), drawing(0.0)
    assert torch.equal(stylizer.stylize(content, style), stylizer.stylize(content, style, strength=EMPTY_STRENGTH))
    assert not torch.equal(stylizer.stylize(content, style, strength=1.0), stylizer.stylize(content, style))
    batch = stylizer.prepare(torch.stack([drawing(0.5), drawing(0.0)]))
    assert torch.as_tensor(batch.strength).tolist() == pytest.approx([1.0, EMPTY_STRENGTH])
    mixed = stylizer.prepare([drawing(0.5), drawing(0.0)], weights=[3, 1])
    assert mixed.strength == pytest.approx(0.75 + 0.25 * EMPTY_STRENGTH)
    with pytest.raises(SettingError, match="strength must be 'auto' or a number from 0 to 1, got 'weak'"):
        stylizer.stylize(content, style, strength="weak")


def test_emptiness_is_that_of_the_selected_part(stylizer: Stylizer) -> None:
    half = torch.zeros(40, 50, dtype=torch.bool)
    half[:, 25:] = True
    assert stylizer.prepare(drawing(0.5), masks=half).strength == pytest.approx(EMPTY_STRENGTH)


def test_strokes_start_from_a_smaller_picture(stylizer: Stylizer, look: Look) -> None:
    content = torch.rand(3, 32, 48)
    coarse = resize(stylizer.stylize(resize(content, (16, 24)), look), (32, 48))

    def refine(depth: int, x: Tensor) -> Tensor:
        return torch.lerp(x, look.match(x, depth, slice(None), "efdm", tolerance=stylizer.network.tolerance), REFINEMENT)

    with torch.no_grad():
        expected = run_network(stylizer.network, coarse[None], refine)[0].clamp(0, 1)
    assert torch.allclose(stylizer.stylize(content, look, stroke=2), expected, atol=2e-2)
    assert stylizer.stylize(content[..., :3, :3], look, stroke=8).shape == (3, 3, 3)
    for stroke in (0.5, 9, float("nan")):
        with pytest.raises(SettingError, match="stroke"):
            stylizer.stylize(content, look, stroke=stroke)
