"""Videos: frames in, frames out, one at a time, with their timestamps and with the sound of the source."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data.images import StrPath, on_white
from efdm.data.video_formats import (
    TICK,
    VIDEO_FORMATS,
    VideoError,
    VideoFormat,
    load_av,
    open_source,
    palette_graph,
    video_format,
)

if TYPE_CHECKING:
    from efdm.data.sound import Soundtrack

__all__ = [
    "VIDEO_FORMATS",
    "Frame",
    "VideoError",
    "VideoFormat",
    "VideoReader",
    "VideoWriter",
    "load_av",
    "open_source",
    "video_format",
]

USUAL_RATE = Fraction(25)  # where a file does not say
HD_HEIGHT = 720  # untagged video of at least this height is nearly always BT.709, below it BT.601


class Frame(NamedTuple):
    """``rgb`` ``(3, h, w)`` of uint8, upright, and when it is shown, in seconds."""

    rgb: Tensor
    time: Fraction


# --- reading ---------------------------------------------------------------------------------------------------------


class VideoReader:
    """Frames of a video in order, once: ``for frame in reader``. Close it, or use it in a ``with``.

    ``size`` is (height, width) as shown, rotation applied. ``fps`` is the average; frames carry their own times, so a
    variable rate is kept. ``frames`` is the number the file gives, or estimated from its duration, or None.
    Transparent pixels are laid on white.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        self._container = open_source(self.path)
        try:
            streams = [s for s in self._container.streams.video if not _is_cover(s)]
            if not streams:
                raise VideoError(f"{self.path} has no video in it, only sound or data; give a file with moving pictures")
            self._stream = streams[0]
            self._stream.thread_type = "AUTO"
            self.fps: Fraction = self._stream.average_rate or self._stream.guessed_rate or USUAL_RATE
            self._left = self._decode()
            try:
                self._first: Frame | None = next(self._left)  # the rotation is known with the first frame
            except StopIteration:
                raise VideoError(f"{self.path} has no frame that can be decoded; copy or download it again") from None
        except BaseException:
            self._container.close()
            raise
        self.size: tuple[int, int] = (self._first.rgb.shape[1], self._first.rgb.shape[2])
        self.frames: int | None = self._stream.frames or self._estimate()

    @property
    def aspect(self) -> Fraction:
        """Width of a pixel for its height, as shown."""
        ratio = Fraction(self._stream.sample_aspect_ratio or 1)
        return 1 / ratio if self._turned % 2 else ratio

    def _estimate(self) -> int | None:
        if self._stream.duration is not None and self._stream.time_base:
            seconds = self._stream.duration * self._stream.time_base
        elif self._container.duration is not None:
            seconds = Fraction(self._container.duration, 1_000_000)
        else:
            return None
        return max(1, round(seconds * self.fps))

    def __iter__(self) -> Iterator[Frame]:
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        yield from self._left

    def _decode(self) -> Iterator[Frame]:
        av = load_av()
        count, time = 0, -1 / self.fps
        try:
            for packet in self._container.demux(self._stream):
                if packet.is_corrupt:
                    raise self._cut_short(count)
                for frame in packet.decode():
                    shown = time + 1 / self.fps if frame.pts is None else frame.pts * Fraction(frame.time_base)
                    time = max(shown, time + TICK) if count else shown  # never backwards, whatever the file says
                    rgb = self._upright(frame)
                    count += 1
                    yield Frame(rgb, time)
        except av.FFmpegError as error:
            raise self._cut_short(count) from error

    def _cut_short(self, count: int) -> VideoError:
        return VideoError(
            f"{self.path} is cut short or damaged after {count} frames; copy or download it again, "
            f"or save the part that is whole: ffmpeg -i {self.path.name} -c copy whole{self.path.suffix}"
        )

    def _upright(self, frame: Any) -> Tensor:
        self._turned = round(frame.rotation / 90) % 4
        untagged = frame.colorspace == 2 and frame.height >= HD_HEIGHT  # 2: "unspecified", in every standard on video
        colours = {"src_colorspace": "ITU709"} if untagged else {}
        if any(part.is_alpha for part in frame.format.components):
            rgba = torch.from_numpy(frame.to_ndarray(format="rgba")).permute(2, 0, 1).float() / 255
            rgb = (on_white(rgba[:3], rgba[3:]) * 255).round().to(torch.uint8)
        else:
            rgb = torch.from_numpy(frame.to_ndarray(format="rgb24", **colours)).permute(2, 0, 1)
        return rgb.rot90(self._turned, (1, 2)).contiguous()  # the file's angle is counter-clockwise, as torch's

    def close(self) -> None:
        self._left.close()  # type: ignore[attr-defined]
        self._container.close()

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_cover(stream: Any) -> bool:
    """The picture on the cover of a song is a video stream, too."""
    return bool(stream.disposition & type(stream.disposition).attached_pic)


# --- writing ---------------------------------------------------------------------------------------------------------


class VideoWriter:
    """Write frames to a video that is there as a whole or not at all: use it in a ``with``.

    The kind of file is that of the extension (`VIDEO_FORMATS`). With ``sound_of`` the sound of that video is kept: copied as
    it is where the new file may hold it, encoded again otherwise. ``aspect`` is the width of a pixel for its height.
    Sizes are those of the first frame; where the encoder needs even numbers, an odd size gets one more row or column, a
    repeated one.
    """

    def __init__(
        self,
        path: StrPath,
        *,
        fps: Fraction | float = USUAL_RATE,
        sound_of: StrPath | None = None,
        aspect: Fraction = Fraction(1),
    ) -> None:
        self.path, self.kind = Path(path), video_format(path)
        self.fps = Fraction(fps).limit_denominator(1001)
        self.frames = 0
        self._sound_of, self._aspect = sound_of, aspect
        self._sound: Soundtrack | None = None
        self._container: Any = None
        self._target = Path(os.path.realpath(path))  # a link stays a link
        self._temporary = self._target.parent / f".{secrets.token_hex(8)}.tmp"
        self._time, self._last_tick = Fraction(0), 0

    def __enter__(self) -> VideoWriter:
        av = load_av()
        with self._sentences():
            if self._target.is_dir():
                raise IsADirectoryError
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._container = av.open(
                str(self._temporary), "w", format=self.kind.format, container_options=self.kind.container
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                with self._sentences():
                    self._finish()
        finally:  # also when interrupted; after the replacement there is nothing left to remove
            self._abandon()

    def write(self, rgb: Tensor, time: Fraction | None = None) -> None:
        """Add a frame ``(3, h, w)``: uint8, or float in [0, 1]; shown at ``time``, by default one frame after the last."""
        if rgb.ndim != 3 or rgb.shape[0] != 3 or rgb.numel() == 0:
            raise ValueError(f"a frame has shape {tuple(rgb.shape)}, expected (3, h, w); write the frames one by one")
        with self._sentences():
            self._write(_even(to_bytes(rgb)) if self.kind.pixels == "yuv420p" else to_bytes(rgb), time)

    def _write(self, rgb: Tensor, time: Fraction | None) -> None:
        av = load_av()
        height, width = rgb.shape[1:]
        if self.frames == 0:
            self._begin(height, width)
        elif (self._stream.height, self._stream.width) != (height, width):
            raise ValueError(
                f"frame {self.frames} is {height} x {width}, the first was {self._stream.height} x {self._stream.width}"
            )
        self._time = (self._time + 1 / self.fps if self.frames else Fraction(0)) if time is None else time
        tick = round(self._time / self.kind.tick)
        if self.frames:
            tick = max(tick, self._last_tick + 1)  # two frames at one time cannot be written
        frame = av.VideoFrame.from_ndarray(rgb.permute(1, 2, 0).contiguous().numpy(), format="rgb24")
        frame.pts, frame.time_base = tick, self.kind.tick
        if self._palette is not None:
            self._palette.push(frame)
            frame = self._palette.pull()
        else:
            frame = frame.reformat(format=self.kind.pixels, dst_colorspace="ITU709", dst_color_range="MPEG")
        frame.pts, frame.time_base = tick, self.kind.tick
        self._container.mux(self._stream.encode(frame))
        self._last_tick = tick
        self.frames += 1
        if self._sound is not None:
            self._sound.until(tick * self.kind.tick)

    def _begin(self, height: int, width: int) -> None:
        from efdm.data.sound import Soundtrack

        stream = self._container.add_stream(self.kind.codec, rate=self.fps, options=dict(self.kind.options))
        stream.width, stream.height, stream.pix_fmt = width, height, self.kind.pixels
        stream.codec_context.time_base = self.kind.tick
        stream.codec_context.sample_aspect_ratio = self._aspect
        if self.kind.pixels == "yuv420p":
            context = stream.codec_context
            context.colorspace = context.color_primaries = context.color_trc = 1  # BT.709, in every standard on video
            context.color_range = 1  # 16 to 235
        self._stream = stream
        self._palette = palette_graph(height, width, self.kind.tick) if self.kind.pixels == "pal8" else None
        if self._sound_of is not None and self.kind.sound_codec is not None:
            self._sound = Soundtrack(Path(self._sound_of), self._container, self.kind.sound_kept, self.kind.sound_codec)

    def _finish(self) -> None:
        if self.frames == 0:
            raise VideoError(f"{self.path} was not written: there were no frames")
        self._container.mux(self._stream.encode(None))
        if self._sound is not None:
            self._sound.until(None)
        self._container.close()
        self._container = None
        os.replace(self._temporary, self._target)

    def _abandon(self) -> None:
        """Close and remove what is left; the error that led here is the one to tell."""
        av = load_av()
        if self._sound is not None:
            self._sound.close()
        if self._container is not None:
            with suppress(av.FFmpegError, OSError, ValueError):
                self._container.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """What the system or the encoder refuses, as a sentence."""
        av = load_av()
        try:
            yield
        except (OSError, av.FFmpegError) as error:
            sentences: dict[type[OSError], str] = {
                PermissionError: "may not be written by you; choose another folder",
                IsADirectoryError: "is a folder; give a file name",
                NotADirectoryError: "lies under something that is not a folder; choose another folder",
                FileExistsError: "lies under something that is not a folder; choose another folder",
            }
            why = getattr(error, "strerror", None) or error
            known = (text for cause, text in sentences.items() if isinstance(error, cause))
            what = next(known, f"could not be written ({why}); choose another folder, size or extension")
            raise VideoError(f"{self.path} {what}") from error


def to_bytes(rgb: Tensor) -> Tensor:
    """uint8 as it is; floats in [0, 1] to the nearest of 255 steps."""
    if rgb.dtype == torch.uint8:
        return rgb.cpu()
    return (rgb.detach().float().clamp(0, 1) * 255).round().to("cpu", torch.uint8)


def _even(rgb: Tensor) -> Tensor:
    height, width = rgb.shape[1:]
    if height % 2 == 0 and width % 2 == 0:
        return rgb
    return F.pad(rgb[None].float(), (0, width % 2, 0, height % 2), mode="replicate")[0].to(torch.uint8)
