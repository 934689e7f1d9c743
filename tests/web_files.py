"""Small files for tests: pictures, videos with sound and untrained classifiers."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efdm.data import read_picture, resize_short_side, write_picture
from efdm.data.embedded import photos
from efdm.data.images import to_uint8

HEIGHT, WIDTH, COUNT, FPS, RATE = 48, 64, 8, 8, 16_000  # of a clip


def photo(path: Path, name: str = "cat", side: int = 96) -> Path:
    write_picture(path, resize_short_side(read_picture(photos()[name]).rgb, side))
    return path


def pictures(height: int = HEIGHT, width: int = WIDTH, count: int = COUNT) -> list[Tensor]:
    """Return smooth ramps of increasing brightness; every frame differs from the others and from its mirror images."""
    y, x = torch.linspace(0, 1, height)[:, None], torch.linspace(0, 1, width)[None]
    ramp = torch.stack([y + 0 * x, x + 0 * y, 1 - y * x])
    return [(ramp * (0.3 + 0.6 * i / count)).clamp(0, 1) for i in range(count)]


def add_sound(out: Any, stream: Any, seconds: float) -> None:
    """Encode a tone of 440 Hz."""
    import av

    sine = (np.sin(np.arange(int(seconds * RATE)) * 2 * np.pi * 440 / RATE) * 20_000).astype(np.int16)[None]
    frame = av.AudioFrame.from_ndarray(sine, format="s16", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = RATE, 0, Fraction(1, RATE)
    out.mux(stream.encode(frame))
    out.mux(stream.encode(None))


def clip(
    path: Path, *, frames: int = COUNT, size: tuple[int, int] = (HEIGHT, WIDTH), sound: str | None = "aac",
    times: Any = None, matrix: Any = None, options: Any = None,
) -> Path:  # fmt: skip
    """Write a video, by default with a tone. ``times`` are in sixteenths of a second."""
    import av

    with av.open(str(path), "w", options=options or {}) as out:
        video = out.add_stream("libx264", rate=FPS, options={"crf": "10"})
        video.height, video.width, video.pix_fmt = *size, "yuv420p"
        video.codec_context.time_base = Fraction(1, 16)
        if matrix:
            video.codec_context.sample_aspect_ratio = Fraction(4, 3)
            video.set_display_matrix(matrix)
        audio = out.add_stream(sound, rate=RATE, layout="mono") if sound else None
        for i, rgb in enumerate(pictures(*size, frames)):
            array = to_uint8(rgb).permute(1, 2, 0).contiguous().numpy()
            frame = av.VideoFrame.from_ndarray(array, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.time_base = (times[i] if times else 2 * i), Fraction(1, 16)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        if audio is not None:
            add_sound(out, audio, frames / FPS)
    return path


def classifier(path: Path, seed: int) -> Path:
    from dg_runs import settings

    from efdm.dg.classifier import save_classifier
    from efdm.models.backbones import build_backbone

    torch.manual_seed(seed)
    save_classifier(build_backbone("tiny", 3), path, classes=["cat", "dog", "house"], settings=settings())
    return path
