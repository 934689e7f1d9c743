"""Predictions of a classifier, and counts of correct ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from efdm.data.domains import DomainSet, StreamedImages, batches_of
from efdm.nn.stages import eval_mode
from efdm.recognition.inference import BATCH, equal_batches, infer
from efdm.training.lanes import WAIT, Work, finish

Counts = dict[str, list[int]]  # domain: [correct, count]


def predict(
    model: nn.Module, images: Tensor | StreamedImages, size: int, *, batch: int = BATCH, precision: str = "fp32"
) -> Tensor:
    """Return class probabilities, float32 ``(n, k)`` on the CPU, of uint8 images ``(n, 3, side, side)``."""
    device = next(model.parameters()).device
    indices = torch.arange(len(images)).split(batch)
    with eval_mode(model):
        parts = [
            infer(model, pictures.to(device), size, precision).float().softmax(1).cpu()
            for _, pictures in batches_of(images, indices)
        ]
    return torch.cat(parts)


def count_correct(
    model: nn.Module, data: DomainSet, indices: Tensor, size: int, *, batch: int = BATCH, precision: str = "fp32"
) -> tuple[int, int]:
    """Return the number of images at ``indices`` that are classified correctly, and the number of all images."""
    correct = finish(find_correct(model, data, indices, size, batch=batch, precision=precision))
    return int(correct.sum()), len(indices)


def find_correct(
    model: nn.Module, data: DomainSet, indices: Tensor, size: int, *, batch: int = BATCH, precision: str = "fp32"
) -> Work[Tensor]:
    """Return which of the images at ``indices`` are classified correctly, as booleans on the device."""
    device = data.images.device
    indices = indices.to(device)
    correct = []
    with eval_mode(model):
        for at, pictures in batches_of(data.images, equal_batches(indices, batch)):
            correct.append(infer(model, pictures, size, precision).argmax(1) == data.labels[at])
            yield
    return torch.cat(correct)[: len(indices)] if correct else torch.empty(0, dtype=torch.bool, device=device)


def evaluate(
    model: nn.Module, data: DomainSet, tested: Mapping[str, Sequence[str]], size: int, *, precision: str = "fp32"
) -> Work[dict[str, Counts]]:
    """Return counts for each split and domain in ``tested``, such as ``{"val": domains, "test": ["sketch"]}``."""
    parts = {split: {domain: data.select(domain, split) for domain in domains} for split, domains in tested.items()}
    at = torch.cat([at for by_domain in parts.values() for at in by_domain.values()]).unique()  # splits may overlap
    correct = torch.zeros(len(data), dtype=torch.bool, device=data.images.device)
    correct[at] = yield from find_correct(model, data, at, size, precision=precision)
    yield WAIT
    correct = correct.cpu()
    return {
        split: {domain: [int(correct[at.cpu()].sum()), len(at)] for domain, at in by_domain.items()}
        for split, by_domain in parts.items()
    }
