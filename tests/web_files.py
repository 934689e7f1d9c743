"""Small files for tests of the web app: pictures, a clip with sound and untrained classifiers."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from efdm.data import read_picture, resize_short_side, write_picture
from efdm.data.embedded import photos

RATE, FPS = 16_000, 8


def photo(path: Path, name: str = "cat", side: int = 96) -> Path:
    write_picture(path, resize_short_side(read_picture(photos()[name]).rgb, side))
    return path


def clip(path: Path, *, frames: int = 8, size: tuple[int, int] = (48, 64)) -> Path:
    """Write an MP4 with a moving pattern and a tone."""
    import av

    with av.open(str(path), "w") as out:
        video, audio = out.add_stream("libx264", rate=FPS), out.add_stream("aac", rate=RATE, layout="mono")
        video.height, video.width, video.pix_fmt = *size, "yuv420p"
        pattern = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
        for shift in range(frames):
            out.mux(video.encode(av.VideoFrame.from_ndarray(np.roll(pattern, 2 * shift, 1), format="rgb24")))
        tone = np.sin(np.arange(RATE * frames // FPS) / 20)[None].astype(np.float32)
        sound = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
        sound.sample_rate, sound.pts, sound.time_base = RATE, 0, Fraction(1, RATE)
        out.mux(audio.encode(sound))
        for stream in (video, audio):
            out.mux(stream.encode(None))
    return path


def classifier(path: Path, seed: int) -> Path:
    from dg_runs import settings

    from efdm.dg.classifier import save_classifier
    from efdm.models.backbones import build_backbone

    torch.manual_seed(seed)
    save_classifier(build_backbone("tiny", 3), path, classes=["cat", "dog", "house"], settings=settings())
    return path
