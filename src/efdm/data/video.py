"""Videos, frame by frame, with timestamps and sound."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from efdm.data.ffmpeg import load_av
from efdm.data.images import StrPath, created, file_error, on_white, to_uint8
from efdm.data.sound import Soundtrack
from efdm.data.video_formats import MICROSECONDS, TICK, VideoError, open_source, palette_graph, start_time, video_format
from efdm.files import fit_name
from efdm.text import plural

DEFAULT_FPS = Fraction(25)  # for files that do not state a rate
HD_HEIGHT = 720  # untagged video of at least this height is nearly always BT.709, otherwise BT.601
ONE = Fraction(1)
MILLISECOND = Fraction(1, 1000)  # unit of the times in Matroska and WebM
MISSING_FRAMES, MISSING_SHARE = 3, Fraction(1, 50)  # tolerance in the duration that a file states
UNSPECIFIED, BT709, LIMITED_RANGE = 2, 1, 1  # codes of ITU-T H.273


class Frame(NamedTuple):
    """``rgb`` ``(3, h, w)`` of uint8, upright, and the times in seconds when and how long the frame is shown."""

    rgb: Tensor
    time: Fraction
    duration: Fraction | None = None  # None if the file does not state it


class VideoReader(AbstractContextManager["VideoReader"]):
    """An iterator over the frames of a video, to be used once in a ``with`` block: ``for frame in reader``.

    ``size`` is (height, width) after rotation. ``fps`` is the average rate; the times of the frames, from the start of the
    file, may be uneven.
    ``frames`` is the number of frames that the file states, an estimate from its duration, or None. Transparent pixels are
    composited over white.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        self._container = open_source(self.path)
        self._start = start_time(self._container)
        try:
            # the cover picture of a song is stored as a video stream
            streams = [s for s in self._container.streams.video if not s.disposition & type(s.disposition).attached_pic]
            if not streams:
                raise VideoError(f"{self.path} has no video stream, only sound or data; pass another file")
            self._stream = streams[0]
            self._stream.thread_type = "AUTO"
            self.fps: Fraction = self._stream.average_rate or self._stream.guessed_rate or DEFAULT_FPS
            self._decoder = self._decode()
            first = next(self._decoder, None)  # the rotation is stored with the frames
            if first is None:
                raise VideoError(f"{self.path} has no frame that can be decoded; copy or download it again")
        except BaseException:
            self._container.close()
            raise
        self._frames = itertools.chain([first], self._decoder)
        self.size: tuple[int, int] = (first.rgb.shape[1], first.rgb.shape[2])
        self.frames: int | None = self._stream.frames or None
        if self.frames is None and self._duration is not None:
            self.frames = max(1, round(self._duration * self.fps))

    @property
    def aspect(self) -> Fraction:
        """The width of a pixel divided by its height, after rotation."""
        ratio = Fraction(self._stream.sample_aspect_ratio or 1)
        return 1 / ratio if self._turns % 2 else ratio

    @property
    def _duration(self) -> Fraction | None:
        """The stated duration of the longest stream in seconds, or None."""
        if self._container.duration is None:
            return None
        duration = Fraction(self._container.duration, MICROSECONDS)
        # FFmpeg writes the end of the last frame as the duration of Matroska and WebM
        return duration - self._start if "matroska" in self._container.format.name else duration

    def __iter__(self) -> Iterator[Frame]:
        return self._frames

    def _decode(self) -> Generator[Frame, None, None]:
        av = load_av()
        count, time, first, end = 0, -1 / self.fps, Fraction(0), Fraction(0)
        try:
            for packet in self._container.demux():
                if packet.pts is not None:
                    end = max(end, (packet.pts + (packet.duration or 0)) * Fraction(packet.time_base))
                if packet.stream is not self._stream:
                    continue
                # the frames before the damage are still in the decoder
                for frame in self._stream.decode(None) if packet.is_corrupt else packet.decode():
                    tick = Fraction(self._stream.time_base)
                    shown = time + 1 / self.fps if frame.pts is None else frame.pts * tick - self._start
                    if count == 0:
                        first = time = shown
                    # increasing, even if the file's times are not
                    time = max(self._snap_to_rate(shown - first) + first, time + TICK) if count else shown
                    rgb = self._upright(frame)
                    count += 1
                    yield Frame(rgb, time, frame.duration * tick if frame.duration else None)
                if packet.is_corrupt:
                    raise self._cut_short(count)
        except av.FFmpegError as error:
            raise self._cut_short(count) from error
        if self._ends_early(end):
            raise self._cut_short(count)

    def _ends_early(self, end: Fraction) -> bool:
        """Return True if the file states a later end than that of its packets, or is a GIF without its last byte."""
        if self._container.format.name == "gif":  # its duration is computed from the frames that are left
            return not _has_trailer(self.path)
        stated = self._duration
        missing = 0 if stated is None else self._start + stated - end
        return missing > max(MISSING_FRAMES / self.fps, (stated or 0) * MISSING_SHARE)

    def _snap_to_rate(self, time: Fraction) -> Fraction:
        """Return the time of the frame at a constant rate, if the file rounded it to milliseconds."""
        exact = round(time * self.fps) / self.fps
        tick = Fraction(self._stream.time_base)
        return exact if tick <= MILLISECOND and abs(exact - time) <= tick else time

    def _cut_short(self, count: int) -> VideoError:
        remedy = f"copy it again, or save the rest: ffmpeg -i {self.path.name} -c copy intact{self.path.suffix}"
        return VideoError(f"{self.path} is cut short or damaged after {plural(count, 'frame')}; {remedy}")

    def _upright(self, frame: Any) -> Tensor:
        self._turns = round(frame.rotation / 90) % 4
        if any(component.is_alpha for component in frame.format.components):
            rgba = torch.from_numpy(frame.to_ndarray(format="rgba")).permute(2, 0, 1).float() / 255
            rgb = to_uint8(on_white(rgba[:3], rgba[3:]))
        else:
            untagged = frame.colorspace == UNSPECIFIED and frame.height >= HD_HEIGHT
            colours = {"src_colorspace": "ITU709"} if untagged else {}
            rgb = torch.from_numpy(frame.to_ndarray(format="rgb24", **colours)).permute(2, 0, 1)
        return rgb.rot90(self._turns, (1, 2)).contiguous()  # counter-clockwise in FFmpeg and in torch

    def __exit__(self, *_: object) -> None:
        self._decoder.close()
        self._container.close()


def _has_trailer(path: Path) -> bool:
    """Return True if a GIF has the byte that ends it, possibly followed by zeros."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 1024))
        return file.read().rstrip(b"\0\r\n").endswith(b";")


def incomplete_path(path: StrPath) -> Path:
    """Return the name under which `VideoWriter` saves an incomplete video: ``out-incomplete.mp4`` for ``out.mp4``."""
    return Path(path).with_name(fit_name(f"{Path(path).stem}-incomplete", Path(path).suffix))


class VideoWriter:
    """Write frames to a video in a ``with`` block. The file is created when the block ends without an error.

    If the block ends with KeyboardInterrupt, or with a VideoError because the source is cut short, the frames so far are
    saved beside it as `incomplete_path`, and the error names that file. After other errors nothing is saved.
    The extension selects the format (`VIDEO_FORMATS`). ``sound_of`` is a video whose sound is copied, or encoded again if
    the format cannot hold it. ``aspect`` is the width of a pixel divided by its height. The first frame sets the size; if
    the encoder needs even numbers, the last row or column of an odd size is repeated.
    """

    def __init__(
        self, path: StrPath, *, fps: Fraction | float = DEFAULT_FPS, sound_of: StrPath | None = None, aspect: Fraction = ONE
    ) -> None:
        self.path, self.format = Path(path), video_format(path)
        self.fps = Fraction(fps).limit_denominator(1001)
        self.frames = 0
        self._sound_of, self._aspect = sound_of, aspect
        self._sound: Soundtrack | None = None
        self._time, self._tick = Fraction(0), 0

    def __enter__(self) -> VideoWriter:
        with ExitStack() as files:
            self._temporary = files.enter_context(created(self.path, VideoError))
            self._temporary.touch()  # FFmpeg opens it only after the first frames
            options = {"format": self.format.format, "container_options": self.format.container}
            self._container: Any = load_av().open(str(self._temporary), "w", **options)
            files.callback(self._close)
            self._files = files.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._files:  # closes the container, then replaces the old file, or deletes the new one after an error
            if isinstance(error, KeyboardInterrupt | VideoError) and self.frames:
                with suppress(load_av().FFmpegError, OSError):
                    self._finish("interrupted")
                    saved = incomplete_path(self.path)
                    os.replace(self._temporary, saved)
                    reason = str(error) or "interrupted"
                    raise type(error)(f"{reason}; saved {plural(self.frames, 'frame')} to {saved}") from error
            if error is not None:
                raise error
            with self._as_video_errors():
                self._finish("complete")

    def write(self, rgb: Tensor, time: Fraction | None = None, duration: Fraction | None = None) -> None:
        """Add a frame ``(3, h, w)`` of uint8, or of floats in [0, 1]. ``time`` defaults to one frame after the last.

        A frame is shown until the next one; ``duration`` sets how long a GIF shows its last frame before it starts again.
        """
        if rgb.ndim != 3 or rgb.shape[0] != 3 or rgb.numel() == 0:
            raise ValueError(f"a frame has shape {tuple(rgb.shape)}, expected (3, h, w); write the frames one by one")
        pixels = to_uint8(rgb).cpu().permute(1, 2, 0).numpy()
        even = 2 if self.format.pixels == "yuv420p" else 1
        pixels = np.pad(pixels, ((0, pixels.shape[0] % even), (0, pixels.shape[1] % even), (0, 0)), mode="edge")
        height, width, _ = pixels.shape
        with self._as_video_errors():
            if self.frames == 0:
                self._start(height, width)
            if (first := (self._stream.height, self._stream.width)) != (height, width):
                size = f"{first[0]} x {first[1]} as the first frame"
                raise ValueError(f"frame {self.frames} is {height} x {width}, expected {size}")
            self._encode(pixels, time, duration)

    def _encode(self, pixels: NDArray[np.uint8], time: Fraction | None, duration: Fraction | None) -> None:
        self._time = (self._time + 1 / self.fps if self.frames else Fraction(0)) if time is None else time
        tick = round(self._time / self.format.tick)
        self._tick = max(tick, self._tick + 1) if self.frames else tick  # the times in a file must increase
        frame = load_av().VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts, frame.time_base = self._tick, self.format.tick
        if self._palette is not None:
            self._palette.push(frame)
            frame = self._palette.pull()
        else:
            frame = frame.reformat(format=self.format.pixels, dst_colorspace="ITU709", dst_color_range="MPEG")
        frame.pts, frame.time_base = self._tick, self.format.tick
        packets = self._stream.encode(frame)
        if self._palette is not None and duration is not None:  # other encoders return the packets of earlier frames
            for packet in packets:
                packet.duration = round(duration / self.format.tick)
        self._container.mux(packets)
        self.frames += 1
        if self._sound is not None:
            self._sound.until(self._tick * self.format.tick)

    def _start(self, height: int, width: int) -> None:
        stream = self._container.add_stream(self.format.codec, rate=self.fps, options=dict(self.format.options))
        stream.width, stream.height, stream.pix_fmt = width, height, self.format.pixels
        context = stream.codec_context
        context.time_base, context.sample_aspect_ratio = self.format.tick, self._aspect
        if self.format.pixels == "yuv420p":
            context.colorspace = context.color_primaries = context.color_trc = BT709
            context.color_range = LIMITED_RANGE
        self._stream = stream
        self._palette = palette_graph(height, width, self.format.tick) if self.format.pixels == "pal8" else None
        if self._sound_of is not None and self.format.audio_codec is not None:
            self._sound = Soundtrack(Path(self._sound_of), self._container, self.format)

    def _finish(self, state: Literal["complete", "interrupted"]) -> None:
        if self.frames == 0:
            raise VideoError(f"{self.path} was not written, because it has no frames")
        self._container.mux(self._stream.encode(None))
        if self._sound is not None and state == "complete":
            self._sound.until(None)
        self._container.close()

    def _close(self) -> None:
        if self._sound is not None:
            self._sound.close()
        # has no effect after `_finish`; after an error, a second error must not replace the first
        with suppress(load_av().FFmpegError, OSError, ValueError):
            self._container.close()

    @contextmanager
    def _as_video_errors(self) -> Iterator[None]:
        """Convert system and encoder errors to `VideoError`."""
        try:
            yield
        except (OSError, load_av().FFmpegError) as error:
            raise file_error(error, self.path, VideoError) from error
