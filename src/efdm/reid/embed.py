"""Feature vectors of pictures."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models import embedding, embedding_width
from efdm.nn.stages import eval_mode
from efdm.progress import Progress, Report, ignore
from efdm.recognition.inference import BATCH, equal_batches, infer
from efdm.recognition.pixels import Size
from efdm.training.lanes import Work, finish


def extract(
    model: nn.Module, images: Tensor, *, size: Size, batch: int = BATCH, precision: str = "fp32", progress: Report = ignore
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
    done = 0
    with eval_mode(model):
        for at in equal_batches(indices.to(images.device), batch):
            features, _ = infer(partial(embedding, model), images[at].to(device), size, precision)
            part = found[done : done + len(at)]
            part.copy_(F.normalize(features.float())[: len(part)])
            done += len(part)
            progress(Progress("extracting features", done, len(found)))
            yield
    return found
