"""Video formats, and opening a video file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from efdm.data.ffmpeg import load_av
from efdm.data.images import PictureError, StrPath, reading

MICROSECONDS = 1_000_000  # per second; the unit of PyAV's containers
TICK = Fraction(1, 120_000)  # divides the frame duration at 24, 25, 30, 50 and 60 fps, and at multiples of 24000/1001 fps


@dataclass(frozen=True)
class VideoFormat:
    """A format to write: container, video encoder, and the audio codecs that the container holds."""

    format: str
    codec: str = "libx264"
    pixels: str = "yuv420p"
    options: dict[str, str] = field(default_factory=lambda: {"crf": "18", "preset": "medium"})  # of the encoder
    container: dict[str, str] = field(default_factory=dict)  # options of the container
    tick: Fraction = TICK
    copied_audio: tuple[str, ...] = ()  # codecs that are copied; "any" stands for all
    audio_codec: str | None = "aac"  # for other audio; None for a format without sound


_AUDIO = ("aac", "mp3", "ac3", "eac3", "alac")
_MP4 = VideoFormat("mp4", container={"movflags": "+faststart"}, copied_audio=(*_AUDIO, "opus"))
# VP9 at crf 24 has about the quality of H.264 at crf 18
_VP9 = {"crf": "24", "b": "0", "row-mt": "1", "cpu-used": "4"}
VIDEO_FORMATS: Mapping[str, VideoFormat] = {
    ".mp4": _MP4,
    ".m4v": _MP4,
    ".mov": replace(_MP4, format="mov", copied_audio=(*_AUDIO, "pcm_s16le", "pcm_s24le")),
    ".mkv": VideoFormat("matroska", copied_audio=("any",)),
    ".webm": VideoFormat("webm", "libvpx-vp9", options=_VP9, copied_audio=("opus", "vorbis"), audio_codec="libopus"),
    # a GIF stores times in hundredths of a second; loop=0 repeats it forever
    ".gif": VideoFormat("gif", "gif", "pal8", {}, {"loop": "0"}, tick=Fraction(1, 100), audio_codec=None),
}  # fmt: skip


class VideoError(PictureError):
    """A video cannot be read or written. The message names the file and what to try."""


def video_format(path: StrPath) -> VideoFormat:
    """Return the row of `VIDEO_FORMATS` for a file name."""
    path = Path(path)
    if path.is_dir() or not path.suffix:
        raise VideoError(f"{path} is not a video file; pass a file name such as {path / 'out.mp4'}")
    row = VIDEO_FORMATS.get(path.suffix.lower())
    if row is None:
        raise VideoError(f"{path} has an extension that cannot be written as a video; use one of {', '.join(VIDEO_FORMATS)}")
    return row


def open_source(path: Path) -> Any:
    """Open a video file for reading and return its PyAV container."""
    av = load_av()
    with reading(path, "is not a video, or its beginning or end is missing", VideoError):
        if not os.path.getsize(path):  # Python's errors are clearer than FFmpeg's
            raise VideoError(f"{path} is empty; copy or download it again")
        return av.open(str(path.absolute()), metadata_errors="replace")


def start_time(container: Any) -> Fraction:
    """Return the time in seconds at which a file starts, which is late for a part of a stream or of a recording."""
    return max(Fraction(0), Fraction(container.start_time or 0, MICROSECONDS))  # sound may start before zero


def palette_graph(height: int, width: int, tick: Fraction) -> Any:
    """Return a filter graph that reduces each frame to a palette of 256 colours."""
    av = load_av()
    graph = av.filter.Graph()
    source = graph.add_buffer(width=width, height=height, format=av.VideoFormat("rgb24"), time_base=tick)
    split, palette = graph.add("split"), graph.add("palettegen", "stats_mode=single")
    use, sink = graph.add("paletteuse", "new=1"), graph.add("buffersink")
    source.link_to(split, 0, 0)
    split.link_to(use, 0, 0)
    split.link_to(palette, 1, 0)
    palette.link_to(use, 0, 1)
    use.link_to(sink, 0, 0)
    graph.configure()
    return graph
