import pytest
import torch
from clips import CLIPS, clip, measure

from efdm.style.motion import estimate_motion, match_exposure, warp

SIZE = (72, 96)


@pytest.mark.parametrize("name", CLIPS)
def test_a_clip_and_its_motion_agree(name: str) -> None:
    """Without noise, the warped previous frame equals the frame."""
    shown = clip(name, frames=4, size=SIZE, noise=0)
    for before, now, motion in zip(shown.frames, shown.frames[1:], shown.motions, strict=False):
        moved, known = warp(before, motion)
        assert known.float().mean() > 0.5
        error = (now - moved).abs().mean(0)[known].mean()
        assert error < {"zoom": 0.02, "exposure": 0.06}.get(name, 1e-4)
        assert name == "exposure" or error < 0.8 * (now - before).abs().mean()


def test_the_content_flickers_only_by_its_noise() -> None:
    shown = clip("pan", frames=4, size=SIZE)
    found = measure(shown.frames, shown.frames, shown.motions)
    assert found["warping"] == found["warping_content"]
    assert found["warping"] == pytest.approx(2 * 2 / torch.pi**0.5, rel=0.1)  # mean absolute difference of two noise samples
    assert found["still"] == found["still_content"]


def test_only_still_regions_are_counted() -> None:
    contents = [torch.full((3, *SIZE), 0.5) for _ in range(4)]
    for i, c in enumerate(contents):
        c[:, :, :48] = 0.2 * i  # the left half moves
    calm = measure(contents, contents)
    assert calm["still"] == pytest.approx(0, abs=1e-3)
    outputs = [c.clone() for c in contents]
    for i, o in enumerate(outputs):
        o[:, :, 64:] += 0.1 * (i % 2)
    changed = 32 / (96 - 48 - 4)  # the window excludes a border beside the moving half
    assert measure(contents, outputs)["still"] == pytest.approx(0.1 * 255 * changed, rel=0.02)


def test_detail_reveals_blur() -> None:
    shown = clip("passing", frames=3, size=SIZE)
    blurred = [torch.nn.functional.avg_pool2d(f, 5, 1, 2) for f in shown.frames]
    sharp, soft = (measure(shown.frames, x, shown.motions) for x in (shown.frames, blurred))
    assert soft["warping"] < sharp["warping"]
    assert soft["detail"] < 0.6 * sharp["detail"]


def test_blinking_ignores_steady_changes() -> None:
    contents = [torch.full((3, *SIZE), 0.5)] * 5
    fading = [c + 0.05 * i for i, c in enumerate(contents)]
    blinking = [c + 0.05 * (i % 2) for i, c in enumerate(contents)]
    assert measure(contents, fading)["blinking"] == pytest.approx(0, abs=1e-3)
    assert measure(contents, blinking)["blinking"] == pytest.approx(0.1 * 255, rel=1e-3)


@pytest.mark.parametrize(("name", "pixels"), [("pan", 0.5), ("zoom", 0.5), ("passing", 0.0), ("exposure", 0.0)])
def test_estimated_motion(name: str, pixels: float) -> None:
    """The median error with noise is small, and zero for a static camera even if its exposure changes."""
    shown = clip(name, frames=3, size=(144, 192))
    before, now, motion = shown.frames[1], shown.frames[2], shown.motions[1]
    found = estimate_motion(now, match_exposure(before, now))
    known = ~motion.isnan().any(0)
    assert (found - motion)[:, known].norm(dim=0).median() <= pixels


def test_warping_by_whole_pixels() -> None:
    picture = torch.rand(3, *SIZE)
    moved, known = warp(picture, torch.tensor([2.0, -3.0])[:, None, None].expand(2, *SIZE))
    assert torch.allclose(moved[:, :-2, 3:], picture[:, 2:, :-3], atol=1e-4)
    assert known[:-2, 3:].all()
    assert not known[-2:].any()
    assert not known[:, :3].any()
    assert not warp(picture, torch.full((2, *SIZE), torch.nan))[1].any()
