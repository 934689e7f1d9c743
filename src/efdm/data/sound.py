"""The sound of a video, copied or encoded again."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from efdm.data.ffmpeg import load_av
from efdm.data.video_formats import VideoError, VideoFormat, open_source, start_time

DEFAULT_RATE = 48_000  # if the encoder does not support the rate of the source
LAYOUTS = {1: "mono", 2: "stereo"}  # PCM states the number of channels, but not their positions


class Soundtrack:
    """All audio tracks of ``source``, written to an open container and interleaved with its video.

    Tracks whose codec the format holds are copied without loss. Others are encoded again.
    """

    def __init__(self, source: Path, out: Any, format: VideoFormat) -> None:
        self.source, self._out = source, out
        self._container = open_source(source)
        self._tracks: dict[int, tuple[Any, Literal["copy", "encode"]]] = {}  # by stream index: output stream and action
        for stream in self._container.streams.audio:
            if "any" in format.copied_audio or stream.codec.canonical_name in format.copied_audio:
                self._tracks[stream.index] = (out.add_stream_from_template(stream), "copy")
            else:
                self._tracks[stream.index] = (_add_audio_stream(out, stream, str(format.audio_codec)), "encode")
        self._packets = self._read()
        self._next = next(self._packets, None)

    def _read(self) -> Iterator[Any]:
        """Yield the packets, with times from the start of the file."""
        start = start_time(self._container)
        # without a stream, demux would read all streams
        for packet in self._container.demux(list(self._container.streams.audio)) if self._tracks else ():
            shift = round(start / packet.time_base)
            packet.pts, packet.dts = (None if time is None else time - shift for time in (packet.pts, packet.dts))
            yield packet

    def until(self, time: Fraction | None) -> None:
        """Write the packets up to ``time``, or all remaining ones if it is None."""
        try:
            while (packet := self._next) is not None:
                if time is not None and packet.dts is not None and packet.dts * packet.time_base > time:
                    return
                self._write(packet)
                self._next = next(self._packets, None)
        except load_av().FFmpegError as error:
            if isinstance(error, OSError):  # about the file that is written, such as a full disk
                raise
            message = f"the sound of {self.source} is damaged or cannot be written ({error}); write the video without sound"
            raise VideoError(message) from error

    def _write(self, packet: Any) -> None:
        stream, action = self._tracks[packet.stream.index]
        if action == "encode":
            for frame in packet.decode():
                self._out.mux(stream.encode(frame))
            if packet.dts is None and packet.size == 0:  # the last packet of a track flushes the encoder
                self._out.mux(stream.encode(None))
        elif packet.dts is not None:
            packet.stream = stream
            self._out.mux(packet)

    def close(self) -> None:
        self._container.close()


def _add_audio_stream(out: Any, stream: Any, codec: str) -> Any:
    rates = load_av().codec.Codec(codec, "w").audio_rates
    rate = stream.rate if not rates or stream.rate in rates else DEFAULT_RATE
    return out.add_stream(codec, rate=rate, layout=LAYOUTS.get(stream.channels, stream.layout.name))
