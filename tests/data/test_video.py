import os
import shutil
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from web_files import COUNT, FPS, HEIGHT, RATE, WIDTH, add_sound, clip, pictures

from efdm.data.images import Picture, to_uint8
from efdm.data.video import VideoReader, VideoWriter, incomplete_path
from efdm.data.video_formats import VIDEO_FORMATS, VideoError
from efdm.errors import MissingExtraError

av = pytest.importorskip("av")

CODED = 8 / 255  # mean change of a smooth frame by compression


def heard(path: Path) -> tuple[str, np.ndarray[Any, Any], list[bytes]]:
    """Return codec, samples and packets of the sound."""
    with av.open(str(path)) as file:
        stream = file.streams.audio[0]
        packets = [bytes(p) for p in file.demux(stream) if p.size]
    with av.open(str(path)) as file:
        samples = np.concatenate([f.to_ndarray().astype(np.float64).reshape(1, -1) for f in file.decode(audio=0)], axis=1)
    return stream.codec.canonical_name, samples, packets


def close(a: Tensor, b: Tensor) -> bool:
    return bool((a.float() / 255 - b.float() / 255).abs().mean() < CODED)


def write(path: Path, frames: Iterable[Tensor], **options: Any) -> Path:
    with VideoWriter(path, **{"fps": FPS, **options}) as writer:
        for frame in frames:
            writer.write(frame)
    return path


def rewrite(source: Path, out: Path) -> None:
    with VideoReader(source) as reader, VideoWriter(out, fps=reader.fps, sound_of=source, aspect=reader.aspect) as writer:
        for frame in reader:
            writer.write(frame.rgb, frame.time, frame.duration)


def test_frames_are_what_was_written(tmp_path: Path) -> None:
    with VideoReader(clip(tmp_path / "clip.mp4")) as reader:
        assert (reader.size, reader.fps, reader.frames, reader.aspect) == ((HEIGHT, WIDTH), FPS, COUNT, 1)
        frames = list(reader)
        assert list(reader) == []  # once
    assert [f.time for f in frames] == [Fraction(i, FPS) for i in range(COUNT)]
    assert all(f.rgb.dtype == torch.uint8 and f.rgb.shape == (3, HEIGHT, WIDTH) for f in frames)
    assert all(close(f.rgb, p) for f, p in zip(frames, map(to_uint8, pictures()), strict=True))
    assert not close(frames[0].rgb, frames[-1].rgb)
    with VideoReader(clip(tmp_path / "clip.mkv", sound=None)) as reader:  # without a number of frames
        assert abs((reader.frames or 0) - COUNT) <= 1


@pytest.mark.parametrize(
    ("matrix", "turns"),
    [((0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30), -1), ((-65536, 0, 0, 0, -65536, 0, 0, 0, 1 << 30), 2)],
    ids=["phone_held_upright", "upside_down"],
)
def test_rotation_is_applied(tmp_path: Path, matrix: tuple[int, ...], turns: int) -> None:
    """The first matrix maps (x, y) to (-y, x), a quarter turn clockwise."""
    with VideoReader(clip(tmp_path / "clip.mp4", sound=None, matrix=matrix)) as reader:
        expected = to_uint8(pictures()[0]).rot90(turns, (1, 2))
        assert reader.size == tuple(expected.shape[1:])
        assert reader.aspect == (Fraction(3, 4) if turns % 2 else Fraction(4, 3))
        assert close(next(iter(reader)).rgb, expected)


def test_variable_rates_are_preserved(tmp_path: Path) -> None:
    times = [0, 1, 2, 6, 7, 12, 13, 20]
    source, out = clip(tmp_path / "clip.mp4", times=times), tmp_path / "out.mp4"
    rewrite(source, out)
    for path in (source, out):
        with VideoReader(path) as reader:
            assert [f.time for f in reader] == [Fraction(t, 16) for t in times]


@pytest.mark.parametrize("suffix", VIDEO_FORMATS)
def test_every_format_is_written_and_read(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"out{suffix}", pictures())
    with VideoReader(path) as reader:
        frames = list(reader)
    assert len(frames) == COUNT
    assert all(abs(float(f.time) - i / FPS) < 0.011 for i, f in enumerate(frames))
    assert all((f.rgb.float() / 255 - p).abs().mean() < 2 * CODED for f, p in zip(frames, pictures(), strict=True))
    assert os.listdir(tmp_path) == [path.name]


def test_strong_colours_survive(tmp_path: Path) -> None:
    """A wrong RGB-YUV matrix in the reader or the writer changes pure colours far more than compression does."""
    colours = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    frames = (colour[:, None, None].expand(3, HEIGHT, WIDTH) for colour in colours)
    with VideoReader(write(tmp_path / "out.mp4", frames)) as reader:
        for frame, colour in zip(reader, colours, strict=True):
            assert (frame.rgb.float() / 255 - colour[:, None, None]).abs().max() < 0.03


def test_mp4_has_common_codecs_and_the_same_duration(tmp_path: Path) -> None:
    rewrite(clip(tmp_path / "clip.mp4", sound=None), tmp_path / "out.mp4")
    with av.open(str(tmp_path / "out.mp4")) as file:
        assert not file.streams.audio
        stream = file.streams.video[0]
        assert (stream.codec.canonical_name, stream.pix_fmt, stream.average_rate) == ("h264", "yuv420p", FPS)
        assert stream.duration * stream.time_base == Fraction(COUNT, FPS)


@pytest.mark.parametrize("size", [(47, 63), (48, 63), (1, 1)])
def test_odd_sizes_get_a_repeated_border(tmp_path: Path, size: tuple[int, int]) -> None:
    pictures_ = pictures(*size, count=2)
    with VideoReader(write(tmp_path / "out.mp4", pictures_, aspect=Fraction(4, 3))) as reader:
        assert reader.aspect == Fraction(4, 3)
        assert reader.size == (size[0] + size[0] % 2, size[1] + size[1] % 2)
        assert close(next(iter(reader)).rgb[:, : size[0], : size[1]], to_uint8(pictures_[0]))


def test_a_gif_keeps_the_pause_before_it_starts_again(tmp_path: Path) -> None:
    images = [Picture(picture).to_pil() for picture in pictures()[:3]]
    images[0].save(tmp_path / "in.gif", save_all=True, append_images=images[1:], duration=[50, 100, 700])
    rewrite(tmp_path / "in.gif", tmp_path / "out.gif")
    with VideoReader(tmp_path / "out.gif") as reader:
        assert [frame.duration for frame in reader] == [Fraction(5, 100), Fraction(10, 100), Fraction(70, 100)]


def test_sound_is_copied_packet_by_packet_except_to_a_gif(tmp_path: Path) -> None:
    source, out = clip(tmp_path / "clip.mp4"), tmp_path / "out.mp4"
    rewrite(source, out)
    rewrite(source, tmp_path / "out.gif")
    with av.open(str(tmp_path / "out.gif")) as file:
        assert not file.streams.audio
    before, after = heard(source), heard(out)
    assert after[0] == before[0] == "aac"
    assert after[2] == before[2]
    assert len(after[2]) > 5
    rewrite(out, out)  # a video can replace its own source
    assert heard(out)[2] == before[2]


@pytest.mark.parametrize(("suffix", "codec"), [(".mp4", "aac"), (".webm", "opus")])
def test_other_sound_is_encoded_again(tmp_path: Path, suffix: str, codec: str) -> None:
    source, out = clip(tmp_path / "clip.mkv", sound="pcm_s16le"), tmp_path / f"out{suffix}"
    rewrite(source, out)
    name, samples, _ = heard(out)
    assert name == codec
    with av.open(str(out)) as file:
        rate = file.streams.audio[0].rate
    assert abs(samples.shape[1] / rate - COUNT / FPS) < 0.15
    peak = np.abs(np.fft.rfft(samples[0])).argmax() * rate / samples.shape[1]
    assert abs(peak - 440) < 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, VideoError, RuntimeError])
def test_an_error_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    """Frames that were written before an interruption, or before the end of a damaged source, are saved beside it."""
    source, folder = clip(tmp_path / "clip.mp4"), tmp_path / "out"
    folder.mkdir()
    (folder / "out.mp4").write_text("before")

    def interrupted() -> None:
        with VideoWriter(folder / "out.mp4", fps=FPS, sound_of=source) as writer:
            assert len(os.listdir(folder)) == 2  # a temporary file beside the old one, before work that might be in vain
            for picture in pictures()[:3]:
                writer.write(picture)
            raise error("reason")

    with pytest.raises(error, match="reason") as caught:
        interrupted()
    if error is RuntimeError:
        assert os.listdir(folder) == ["out.mp4"]
    else:
        assert "saved 3 frames to" in str(caught.value)
        assert sorted(os.listdir(folder)) == ["out-incomplete.mp4", "out.mp4"]
        with VideoReader(incomplete_path(folder / "out.mp4")) as reader:
            assert len(list(reader)) == 3
    assert (folder / "out.mp4").read_text() == "before"


def test_the_name_of_an_incomplete_video_fits_a_file_system() -> None:
    assert len(incomplete_path("m" * 250 + ".mp4").name) == 255


def test_bad_files_are_explained(tmp_path: Path) -> None:
    half = clip(tmp_path / "half.mp4")  # cut before its index
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    with av.open(str(tmp_path / "sound.mp4"), "w") as out:
        add_sound(out, out.add_stream("aac", rate=RATE, layout="mono"), 1)
    (tmp_path / "text.mp4").write_text("not a video at all " * 100)
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "empty.mp4").touch()
    cases = {
        "missing": "does not exist", "folder": "is a folder", "empty": "is empty", "text": "is not a video",
        "sound": "has no video", "half": "is not a video, or its beginning",
    }  # fmt: skip
    for name, sentence in cases.items():
        with pytest.raises(VideoError, match=f"{name}.mp4 {sentence}") as caught:
            VideoReader(tmp_path / f"{name}.mp4")
        assert "\n" not in str(caught.value)


def test_truncated_file_states_the_number_of_frames(tmp_path: Path) -> None:
    path = clip(tmp_path / "clip.mp4", sound=None, options={"movflags": "+faststart"})  # its index comes first
    path.write_bytes(path.read_bytes()[:-200])
    with VideoReader(path) as reader, pytest.raises(VideoError, match=r"cut short or damaged after \d frames"):
        list(reader)


def test_all_frames_before_the_damage_are_read(tmp_path: Path) -> None:
    """Several frames are still in the decoder when it receives the damaged packet."""
    path = clip(tmp_path / "clip.mp4", sound=None, frames=3 * COUNT, options={"movflags": "+faststart"})
    with av.open(str(path)) as file:
        ends = [packet.pos + packet.size for packet in file.demux(video=0) if packet.size]
    path.write_bytes(path.read_bytes()[: ends[COUNT] - 5])
    with VideoReader(path) as reader, pytest.raises(VideoError, match=f"after {COUNT} frames"):
        list(reader)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".webm"])
def test_a_file_cut_between_two_packets_is_detected(tmp_path: Path, suffix: str) -> None:
    """FFmpeg ends without an error; only the stated duration shows that frames are missing."""
    noise = torch.rand(3 * COUNT, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
    path = write(tmp_path / f"clip{suffix}", noise)
    with VideoReader(path) as reader:
        assert len(list(reader)) == 3 * COUNT
    data = path.read_bytes()
    for share in (0.4, 0.5, 0.6, 0.7):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(VideoError, match="cut short"), VideoReader(path) as reader:
            list(reader)


def test_a_gif_without_its_last_byte_is_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path / "clip.gif", torch.rand(COUNT, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0)))
    data = path.read_bytes()
    for end in (b"", b"\0\n"):  # some programs append zeros
        path.write_bytes(data + end)
        with VideoReader(path) as reader:
            assert len(list(reader)) == COUNT
    for share in (0.4, 0.5, 0.6, 0.7):
        path.write_bytes(data[: int(len(data) * share)])
        with VideoReader(path) as reader, pytest.raises(VideoError, match="cut short"):
            list(reader)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".mts"])
def test_a_late_start_is_removed(tmp_path: Path, suffix: str) -> None:
    """A recording of a stream may start at any time. FFmpeg includes this time in the duration of Matroska only."""
    source, late, out = clip(tmp_path / "clip.mp4"), tmp_path / f"late{suffix}", tmp_path / "out.mp4"
    with av.open(str(source)) as file, av.open(str(late), "w", format={".mts": "mpegts"}.get(suffix)) as copy:
        streams = {stream.index: copy.add_stream_from_template(stream) for stream in file.streams}
        for packet in file.demux():
            if packet.dts is not None:
                shift = round(100 / packet.time_base)
                packet.pts, packet.dts, packet.stream = packet.pts + shift, packet.dts + shift, streams[packet.stream.index]
                copy.mux(packet)
    with VideoReader(late) as reader:
        assert (reader.frames or 0) < 3 * COUNT  # estimated from the sound, which is longer
        frames = list(reader)
    assert len(frames) == COUNT
    assert 0 <= frames[0].time < 0.1
    rewrite(late, out)
    assert heard(out)[2] == heard(source)[2]
    with av.open(str(out)) as file:
        assert all(0 <= stream.start_time * stream.time_base < 0.1 for stream in file.streams)


@pytest.mark.parametrize("rate", [Fraction(30_000, 1001), Fraction(24_000, 1001), Fraction(60_000, 1001), Fraction(25)])
def test_rates_do_not_drift_between_containers(tmp_path: Path, rate: Fraction) -> None:
    """Matroska rounds times to milliseconds."""
    rewrite(write(tmp_path / "clip.mkv", pictures(count=40), fps=rate), tmp_path / "out.mp4")
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert reader.fps == rate
        assert [frame.time for frame in reader] == [i / rate for i in range(40)]


def test_nothing_is_written_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, sentence in {"out.mp4": "no frames", "file/out.mp4": "not a folder"}.items():
        with pytest.raises(VideoError, match=sentence), VideoWriter(tmp_path / name):
            pass
    assert os.listdir(tmp_path) == ["file"]


def test_disk_errors_are_not_reported_as_damaged_sound(tmp_path: Path) -> None:
    """The sound is written first, because the encoder of the video delays its frames."""
    source, folder = clip(tmp_path / "clip.mp4"), tmp_path / "out"

    def write() -> None:
        with VideoWriter(folder / "out.mp4", fps=FPS, sound_of=source) as writer:
            shutil.rmtree(folder)
            for picture in pictures():
                writer.write(picture)

    with pytest.raises(VideoError, match=r"out\.mp4 does not exist"):
        write()


def test_other_extensions_and_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"\.mp4.*\.gif"):
        VideoWriter("out.xyz")
    with pytest.raises(VideoError, match=r"file name such as .*out\.mp4"):
        VideoWriter(tmp_path)
    with VideoWriter(tmp_path / "out.mp4", fps=FPS) as writer:
        writer.write(pictures()[0])
        with pytest.raises(ValueError, match="expected 48 x 64"):
            writer.write(pictures(HEIGHT * 2)[0])
        with pytest.raises(ValueError, match="expected"):
            writer.write(pictures()[0][None])


def test_missing_pyav_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingExtraError, match=r"efdm\[style\]"):
        VideoReader(tmp_path / "clip.mp4")
