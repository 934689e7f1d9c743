"""Stylized frames: the stream, less flicker, files."""

import os
import wave
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest
import torch
from clips import clip, measure
from torch import Tensor

from efdm.models import build
from efdm.progress import Progress
from efdm.style.jobs import stylize_video
from efdm.style.look import Look
from efdm.style.options import StylizeOptions, Temporal
from efdm.style.stylizer import Stylizer
from efdm.style.video import OutputSmoother, is_cut, sharpen_like, stylize_frames

SIZE = (48, 64)


@pytest.fixture(scope="module")
def stylizer() -> Stylizer:
    torch.manual_seed(0)
    return Stylizer(build("small"), "cpu")


@pytest.fixture(scope="module")
def look(stylizer: Stylizer) -> Look:
    return stylizer.prepare(torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(1)))


def frames(count: int = 4, size: tuple[int, int] = SIZE) -> list[Tensor]:
    return clip("pan", frames=count, size=size).frames


@pytest.mark.parametrize("temporal", get_args(Temporal))
def test_one_output_for_each_frame(stylizer: Stylizer, look: Look, temporal: str) -> None:
    made = list(stylize_frames(stylizer, frames(3), look, temporal=temporal))
    assert [m.shape for m in made] == [(3, *SIZE)] * 3
    assert all(0 <= m.min() <= m.max() <= 1 for m in made)
    assert torch.equal(made[0], stylizer.stylize(frames(3)[0], look))


def test_smoothing_restarts_at_a_cut(stylizer: Stylizer, look: Look) -> None:
    scene, other = frames(3), [f * 0.1 for f in clip("passing", frames=3, size=SIZE).frames]
    made = list(stylize_frames(stylizer, scene + other, look, temporal="smooth"))
    alone = list(stylize_frames(stylizer, other, look, temporal="smooth"))
    assert all(torch.equal(a, b) for a, b in zip(made[3:], alone, strict=True))
    assert not torch.equal(made[2], next(stylize_frames(stylizer, scene[2:], look, temporal="smooth")))


def test_motion_and_exposure_are_not_cuts() -> None:
    pan, exposure = (clip(name, frames=2, size=SIZE).frames for name in ("pan", "exposure"))
    assert not is_cut(*pan)
    assert not is_cut(*exposure)
    assert is_cut(pan[0], clip("passing", frames=1, size=SIZE).frames[0] * 0.3)


def test_frames_are_read_one_at_a_time(stylizer: Stylizer, look: Look) -> None:
    read = []

    def endless() -> object:
        for i in range(1_000_000):
            read.append(i)
            yield torch.rand(3, *SIZE)

    made = stylize_frames(stylizer, endless(), look)  # type: ignore[arg-type]
    next(made), next(made)
    assert read == [0, 1]


def test_gradient_mode_is_unchanged_between_frames(stylizer: Stylizer, look: Look) -> None:
    for made in stylize_frames(stylizer, frames(2), look):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        assert not made.requires_grad


def test_uint8_frames(stylizer: Stylizer, look: Look) -> None:
    whole = [(f * 255).round().to(torch.uint8) for f in frames(2)]
    a = list(stylize_frames(stylizer, whole, look))
    b = list(stylize_frames(stylizer, [w.float() / 255 for w in whole], look))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "options",
    [{"preserve_color": "content"}, {"preserve_color": "luminance"}, {"photoreal": "grid"}, {"tolerance": 0.3},
     {"size": 24, "photoreal": "guided"}, {"method": "adain", "strength": 0.5}, {"method": "joint"}],
    ids=str,
)  # fmt: skip
def test_frames_take_the_options_of_pictures(stylizer: Stylizer, look: Look, options: dict[str, object]) -> None:
    made = stylize_frames(stylizer, frames(2), look, temporal="none", **options)
    for frame, output in zip(frames(2), made, strict=True):
        assert torch.equal(output, stylizer.stylize(frame, look, **options))


@pytest.mark.parametrize("temporal", ["none", "smooth"])
def test_masks_apply_to_all_frames(stylizer: Stylizer, look: Look, temporal: str) -> None:
    mask = torch.zeros(SIZE, dtype=torch.bool)
    mask[:, :32] = True
    made = list(stylize_frames(stylizer, frames(), regions=[(mask, look)], temporal=temporal))
    for frame, output in zip(frames(), made, strict=True):
        assert torch.equal(output[:, ~mask], frame[:, ~mask])
        assert not torch.equal(output[:, mask], frame[:, mask])
    if temporal == "none":
        assert torch.equal(made[1], stylizer.stylize(frames()[1], regions=[(mask, look)]))


def test_the_grid_of_the_network_follows_a_pan() -> None:
    shown = clip("pan", frames=4, size=(96, 128), noise=0.0)
    outputs = OutputSmoother("smooth", 8)
    margins = []
    for frame in shown.frames:
        margins.append(outputs.align(frame))
        outputs.blend(frame, frame)
    assert margins == [[3 * i % 8, -3 * i % 8, i, -i % 8] for i in range(4)]  # the camera moves by (1, 3)


def test_sharpening_restores_the_contrast_of_details() -> None:
    sharp = torch.rand(3, 32, 32)
    assert torch.allclose(sharpen_like(sharp, sharp), sharp, atol=1e-5)
    mean = 0.5 + (sharp - 0.5) * 0.6
    made = sharpen_like(mean, sharp)
    assert made.diff().abs().mean() == pytest.approx(float(sharp.diff().abs().mean()), rel=0.1)
    assert (sharpen_like(mean, torch.full_like(sharp, 0.5)) == mean).all()  # never blurs


def test_wrong_frames(stylizer: Stylizer, look: Look) -> None:
    for wrong, message in (
        (torch.rand(3, *SIZE) * 255, "frame / 255"),
        (torch.full((3, *SIZE), torch.nan), "from nan"),
        (torch.ones(3, *SIZE, dtype=torch.int32), "frame / 255"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            next(stylize_frames(stylizer, [wrong], look))


def test_wrong_arguments_raise_before_the_first_frame(stylizer: Stylizer, look: Look) -> None:
    for name, value in (("temporal", "smoth"), ("method", "magic"), ("size", 0), ("strength", 1.5)):
        with pytest.raises(ValueError, match=rf"{name}.*{value}"):
            stylize_frames(stylizer, [], look, **{name: value})


@pytest.mark.parametrize(
    ("name", "temporal", "share"),
    [("passing", "still", 0.5), ("passing", "smooth", 0.6), ("pan", "smooth", 0.7), ("exposure", "smooth", 0.5)],
)
def test_smoothing_reduces_flicker(stylizer: Stylizer, look: Look, name: str, temporal: str, share: float) -> None:
    """The noise is visible and the weights are random; benchmarks/flicker.py measures the trained network."""
    shown = clip(name, frames=5, size=(96, 128), noise=4 / 255)
    plain, calm = (
        measure(shown.frames, list(stylize_frames(stylizer, shown.frames, look, temporal=t)), shown.motions)["warping"]
        for t in ("none", temporal)
    )
    assert calm < share * plain


@pytest.mark.parametrize(("name", "share"), [("pan", 0.22), ("zoom", 0.6)])
def test_the_default_has_little_flicker_and_is_sharp(name: str, share: float) -> None:
    """With the trained network; without alignment and sharpening, a pan has 0.27 of the error and 0.82 of the detail."""
    trained = Stylizer.from_pretrained("small", "cpu")
    look, shown = trained.prepare("starry", size=128), clip(name, frames=6, size=(96, 128))
    plain, calm = (
        measure(shown.frames, list(stylize_frames(trained, shown.frames, look, **options)), shown.motions)
        for options in ({"temporal": "none"}, {})
    )
    assert calm["warping"] < share * plain["warping"]
    assert calm["detail"] > 0.94 * plain["detail"]


@pytest.mark.gpu
@pytest.mark.parametrize("temporal", get_args(Temporal))
def test_frames_on_a_gpu(stylizer: Stylizer, look: Look, temporal: str) -> None:
    mask = torch.linspace(0, 1, SIZE[1]).expand(SIZE)
    other = Stylizer(stylizer.network, "cuda")
    moved = other.prepare(torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(1)))
    made = []
    for one, its in ((stylizer, look), (other, moved)):
        made.append(list(stylize_frames(one, frames(3), regions=[(mask, its)], temporal=temporal)))
    assert all(frame.device.type == "cpu" for frame in made[1])
    assert all((a - b).abs().mean() < 0.02 for a, b in zip(*made, strict=True))


def test_changed_areas_leave_no_ghost() -> None:
    outputs = OutputSmoother("still", 8)
    content, new = torch.full((3, *SIZE), 0.2), torch.full((3, *SIZE), 0.2)
    new[:, :, :32] = 0.9
    outputs.align(content)
    outputs.blend(content, torch.zeros(3, *SIZE))
    outputs.align(new)
    made = outputs.blend(new, torch.ones(3, *SIZE))
    assert (made[:, :, :29] > 0.999).all()
    assert torch.allclose(made[:, :, 35:], torch.tensor(0.2))


def test_video_file_with_sound(tmp_path: Path, stylizer: Stylizer, look: Look) -> None:
    av = pytest.importorskip("av")
    from efdm.data.video import VideoReader, VideoWriter

    with wave.open(str(tmp_path / "noise.wav"), "wb") as noise:
        noise.setparams((1, 2, 8000, 0, "NONE", ""))
        noise.writeframes(os.urandom(8000))
    with VideoWriter(tmp_path / "in.mp4", fps=8, sound_of=tmp_path / "noise.wav") as writer:
        for i, frame in enumerate(frames(8)):
            writer.write(frame, Fraction(i * i, 64))
    for audio, tracks in (("keep", 1), ("drop", 0)):
        options = StylizeOptions(size=24, audio=audio)  # type: ignore[arg-type]
        assert stylize_video(tmp_path / "in.mp4", tmp_path / "out.mp4", stylizer, options, style=look) == 8
        with VideoReader(tmp_path / "out.mp4") as reader:
            assert reader.size == SIZE
            assert [f.time for f in reader] == [Fraction(i * i, 64) for i in range(8)]
        with av.open(str(tmp_path / "out.mp4")) as file:
            assert len(file.streams.audio) == tracks


def test_progress_ends_with_the_number_of_frames(
    tmp_path: Path, stylizer: Stylizer, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    from efdm.data.video import VideoReader, VideoWriter

    with VideoWriter(tmp_path / "in.mp4", fps=8) as writer:
        for frame in frames(3):
            writer.write(frame)
    made, seen = VideoReader.__init__, list[Progress]()
    monkeypatch.setattr(VideoReader, "__init__", lambda self, path: made(self, path) or setattr(self, "frames", 5))
    stylize_video(
        tmp_path / "in.mp4", tmp_path / "out.mp4", stylizer, StylizeOptions(size=24), style=look, progress=seen.append
    )
    assert [(each.done, each.total) for each in seen] == [(1, 5), (2, 5), (3, 5), (3, 3)]
