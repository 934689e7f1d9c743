"""Normalized VGG encoders, which decoders are trained for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from efdm.data import ImageSet, draw_crops, take_crops
from efdm.models import mean_activations, normalize
from efdm.models.vgg import CONVS_PER_BLOCK
from efdm.models.weights import find, load_encoder, save_encoder
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.style.plan import check_overwrite

DEEPEST = "relu5_1"  # the deepest layer that a style loss uses
BATCH, CROP = 8, 256


def write_normalized_encoder(
    name: str, content: str | Path, out: Path, *, vgg: Path | None = None, limit: int = 300, progress: Report = ignore
) -> None:
    """Rescale a VGG so that every channel has a mean activation of 1, and write it to the safetensors file ``out``.

    The activations are measured on at most ``limit`` photographs of ``content``, a folder or a zip. ``vgg`` is the file
    with the ImageNet weights; it defaults to the file in the weights folders.
    """
    check_choice("name", name, tuple(CONVS_PER_BLOCK))
    weights = find(name, vgg)
    if out.is_dir():
        raise ValueError(f"{out} is a folder; pass a file such as {out / weights.stem}-normalized.safetensors")
    check_overwrite([out], [weights, Path(content)])
    encoder = load_encoder(name, DEEPEST, path=vgg)
    normalize(encoder, mean_activations(encoder, _crops(ImageSet.load(content, progress=progress), limit, progress)))
    save_encoder(encoder, out)


def _crops(photos: ImageSet, limit: int, progress: Report) -> Iterator[Tensor]:
    """Yield batches of random crops from photographs that are spread evenly over the set."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.linspace(0, len(photos) - 1, min(limit, len(photos))).long().split(BATCH)
    size = min(CROP, photos.smallest)
    for done, batch in enumerate(chosen):
        progress(Progress("measuring activations", done, len(chosen)))
        yield take_crops(photos, draw_crops(photos.sizes, batch, size, generator), size).float() / 255
    progress(Progress("measuring activations", len(chosen), len(chosen)))
