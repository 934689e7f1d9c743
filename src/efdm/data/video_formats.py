"""Kinds of video files, and the one door to PyAV, which is imported when a video is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from efdm.data.images import PictureError, StrPath, read_error
from efdm.errors import requires

CRF = 18  # x264's scale of quality: smaller is better and larger; its own default is 23
VP9_CRF = 24  # on VP9's scale, about the same
TICK = Fraction(1, 120_000)  # a whole number of ticks for 24, 25, 30, 50, 60 frames a second, and for 24000/1001 and its kin


@dataclass(frozen=True)
class VideoFormat:
    """A kind of file to write: container, encoder, and which sound it takes as it is ("any" for all)."""

    format: str
    codec: str
    pixels: str = "yuv420p"
    options: dict[str, str] = field(default_factory=dict)  # for the encoder
    container: dict[str, str] = field(default_factory=dict)
    tick: Fraction = TICK
    sound_kept: tuple[str, ...] = ()
    sound_codec: str | None = "aac"  # for sound that cannot be kept as it is; None: the kind is silent


_H264 = {"crf": str(CRF), "preset": "medium"}
_MP4 = VideoFormat(
    "mp4", "libx264", options=_H264, container={"movflags": "+faststart"},
    sound_kept=("aac", "mp3", "ac3", "eac3", "alac", "opus"),
)  # fmt: skip
VIDEO_FORMATS: Mapping[str, VideoFormat] = MappingProxyType({
    ".mp4": _MP4,
    ".m4v": _MP4,
    ".mov": VideoFormat(
        "mov", "libx264", options=_H264, container={"movflags": "+faststart"},
        sound_kept=("aac", "mp3", "ac3", "eac3", "alac", "pcm_s16le", "pcm_s24le"),
    ),
    ".mkv": VideoFormat("matroska", "libx264", options=_H264, sound_kept=("any",)),
    ".webm": VideoFormat(
        "webm", "libvpx-vp9", options={"crf": str(VP9_CRF), "b": "0", "row-mt": "1", "cpu-used": "4"},
        sound_kept=("opus", "vorbis"), sound_codec="libopus",
    ),
    # hundredths of a second is all a GIF knows; it repeats for ever
    ".gif": VideoFormat("gif", "gif", pixels="pal8", container={"loop": "0"}, tick=Fraction(1, 100), sound_codec=None),
})  # fmt: skip


class VideoError(PictureError):
    """A video that cannot be read or written: one sentence for the user, with the file and what to try."""


def load_av() -> Any:
    with requires("video"):
        import av
    av.logging.set_level(None)  # what goes wrong is raised as well, and said in our own words
    return av


def video_format(path: StrPath) -> VideoFormat:
    """The row of `VIDEO_FORMATS` for a file name."""
    kind = VIDEO_FORMATS.get(Path(path).suffix.lower())
    if kind is None:
        raise VideoError(f"{path} has an extension that cannot be written as a video; use one of {', '.join(VIDEO_FORMATS)}")
    return kind


def open_source(path: Path) -> Any:
    """The open container of a video file, or a sentence."""
    av = load_av()
    try:
        with open(path, "rb") as file:  # the system's own words for what is missing or forbidden
            if not file.read(1):
                raise VideoError(f"{path} is empty; copy or download it again")
        return av.open(str(path.absolute()), metadata_errors="replace")
    except av.FFmpegError as error:
        raise VideoError(
            f"{path} is not a video, or is cut short at its beginning or end ({error.strerror}); copy or download it "
            "again, or save it as MP4"
        ) from error
    except OSError as error:
        raise VideoError(str(read_error(error, path, "video"))) from error


def palette_graph(height: int, width: int, tick: Fraction) -> Any:
    """A filter to frames in 256 colours, chosen anew for every frame."""
    av = load_av()
    graph = av.filter.Graph()
    source = graph.add_buffer(width=width, height=height, format=av.VideoFormat("rgb24"), time_base=tick)
    both, choose = graph.add("split"), graph.add("palettegen", "stats_mode=single")
    use, sink = graph.add("paletteuse", "new=1"), graph.add("buffersink")
    for giver, out, taker, into in (
        (source, 0, both, 0),
        (both, 0, use, 0),
        (both, 1, choose, 0),
        (choose, 0, use, 1),
        (use, 0, sink, 0),
    ):
        giver.link_to(taker, out, into)
    graph.configure()
    return graph
