"""The sound of one video, carried over to another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from efdm.data.video import VideoError, load_av, open_source

SPARE_RATE = 48_000  # for sound at a rate that the encoder does not know
LAYOUTS = {1: "mono", 2: "stereo"}  # plain PCM says how many channels there are, but not where they stand


class Soundtrack:
    """Every audio track of ``source``, written to an open container as its video grows.

    Packets are copied where the container may hold their codec, which loses nothing; others are decoded and encoded again.
    """

    def __init__(self, source: Path, out: Any, kept: Collection[str], codec: str) -> None:
        self.source, self._out = source, out
        self._container = open_source(source)
        self._tracks: dict[int, tuple[Any, str]] = {}  # of the source's stream: ours, and what is done
        for stream in self._container.streams.audio:
            copied = "any" in kept or stream.codec.canonical_name in kept
            ours = out.add_stream_from_template(stream) if copied else _encoder(out, stream, codec)
            self._tracks[stream.index] = (ours, "copy" if copied else "encode")
        self._packets = self._read()
        self._next: Any = None

    def _read(self) -> Iterator[Any]:
        if self._tracks:
            yield from self._container.demux(list(self._container.streams.audio))

    def until(self, time: Fraction | None) -> None:
        """Write what is heard up to ``time``, or all that is left: players want sound and pictures side by side."""
        av = load_av()
        try:
            while (packet := next(self._packets, None) if self._next is None else self._next) is not None:
                self._next = packet
                if time is not None and packet.dts is not None and packet.dts * packet.time_base > time:
                    return
                self._next = None
                self._write(packet)
        except av.FFmpegError as error:
            raise VideoError(f"the sound of {self.source} is damaged or cannot be kept ({error}); leave it out") from error

    def _write(self, packet: Any) -> None:
        ours, what = self._tracks[packet.stream.index]
        if what == "encode":  # the empty packet at the end of each track empties the decoder, and then our encoder
            for frame in packet.decode():
                self._out.mux(ours.encode(frame))
            if packet.dts is None and packet.size == 0:
                self._out.mux(ours.encode(None))
        elif packet.dts is not None:
            packet.stream = ours
            self._out.mux(packet)

    def close(self) -> None:
        self._container.close()


def _encoder(out: Any, stream: Any, codec: str) -> Any:
    rates = load_av().codec.Codec(codec, "w").audio_rates
    rate = stream.rate if not rates or stream.rate in rates else SPARE_RATE
    layout = LAYOUTS.get(stream.channels, stream.layout.name)
    return out.add_stream(codec, rate=rate, layout=layout)
