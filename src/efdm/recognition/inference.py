"""Forward passes in eval mode, in batches of one size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from efdm.recognition.pixels import Size, prepared
from efdm.training import autocast, weights_dtype

BATCH = 256  # pictures
Output = TypeVar("Output")


def equal_batches(indices: Tensor, batch: int) -> tuple[Tensor, ...]:
    """Split indices into batches of one size; the last batch is padded with the first index.

    cuDNN searches for algorithms once per size.
    """
    batch = max(1, min(batch, len(indices)))
    return torch.cat([indices, indices[:1].expand(-len(indices) % batch)]).split(batch)


@torch.inference_mode()
def infer(model: Callable[[Tensor], Output], images: Tensor, size: Size, precision: str) -> Output:
    """Return the output of a model for uint8 pictures, resized to ``size`` and normalized."""
    inputs = prepared(images, size).to(weights_dtype(precision), memory_format=torch.channels_last)
    with autocast(images.device, precision):
        return model(inputs)
