"""Feature vectors of pictures."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models import embedding, embedding_width
from efdm.nn.stages import eval_mode
from efdm.progress import Progress, Report, ignore
from efdm.recognition.pixels import Size, prepared
from efdm.training import autocast
from efdm.training.lanes import Work, finish

BATCH = 256  # pictures per batch


def extract(
    model: nn.Module,
    images: Tensor,
    *,
    size: Size,
    batch: int = BATCH,
    precision: str = "fp32",
    progress: Report = ignore,
) -> Tensor:
    """Return the features of uint8 pictures ``(n, 3, h, w)``, float32 ``(n, d)`` of length 1, on the device of the model.

    The features are those that enter the classifier. Pictures are resized to ``size`` (height, width).
    """
    every = torch.arange(len(images), device=images.device)
    return finish(extract_at(model, images, every, size=size, batch=batch, precision=precision, progress=progress))


def extract_at(
    model: nn.Module,
    images: Tensor,
    indices: Tensor,
    *,
    size: Size,
    batch: int = BATCH,
    precision: str = "fp32",
    progress: Report = ignore,
) -> Work[Tensor]:
    """Return the features of the pictures at ``indices``, as `extract` does, and yield after every batch."""
    device = next(model.parameters()).device
    found = torch.zeros(len(indices), embedding_width(model), device=device)
    # padded to batches of one size, because cuDNN searches for algorithms once per size
    batch = max(1, min(batch, len(indices)))
    padded = torch.cat([indices, indices[:1].expand(-len(indices) % batch)]).to(images.device)
    with eval_mode(model):
        for start, at in zip(range(0, len(padded), batch), padded.split(batch), strict=False):
            part = found[start : start + batch]
            part.copy_(_features(model, images[at].to(device), size, precision)[: len(part)])
            progress(Progress("extracting features", start + len(part), len(found)))
            yield
    return found


@torch.inference_mode()
def _features(model: nn.Module, images: Tensor, size: Size, precision: str) -> Tensor:
    inputs = prepared(images, size).contiguous(memory_format=torch.channels_last)
    with autocast(images.device, precision):
        features, _ = embedding(model, inputs)
    return F.normalize(features.float())
