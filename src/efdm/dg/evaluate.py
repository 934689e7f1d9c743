"""What a classifier makes of pictures: classes, and how many are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from efdm.data.domains import DomainSet
from efdm.dg.augment import prepared
from efdm.nn.stages import eval_mode
from efdm.training import autocast
from efdm.training.lanes import Work, finish

BATCH = 256  # pictures at once
Counts = dict[str, list[int]]  # domain: [correct, count]


def predict(model: nn.Module, images: Tensor, size: int, *, batch: int = BATCH, precision: str = "fp32") -> Tensor:
    """Probabilities of the classes, float32 ``(n, k)`` on the CPU, for bytes ``(n, 3, side, side)``."""
    device = next(model.parameters()).device
    with eval_mode(model):
        made = [_logits(model, part.to(device), size, precision).float().softmax(1).cpu() for part in images.split(batch)]
    return torch.cat(made)


def count_correct(
    model: nn.Module, data: DomainSet, indices: Tensor, size: int, *, batch: int = BATCH, precision: str = "fp32"
) -> tuple[int, int]:
    """Of these pictures, how many are classified correctly, and how many there are. The data is on the model's device."""
    right = finish(find_correct(model, data, indices, size, batch=batch, precision=precision))
    return int(right.sum()), len(indices)


def find_correct(
    model: nn.Module, data: DomainSet, indices: Tensor, size: int, *, batch: int = BATCH, precision: str = "fp32"
) -> Work[Tensor]:
    """Which of these pictures are classified correctly, as booleans on the device."""
    device = data.images.device
    indices = indices.to(device)
    # all batches are of one size: libraries look for the best algorithm once for each size that they meet
    batch = min(batch, len(indices))
    padded = torch.cat([indices, indices[:1].expand(-len(indices) % max(1, batch))])
    right = []
    with eval_mode(model):
        for at in padded.split(max(1, batch)):
            right.append(_logits(model, data.images[at], size, precision).argmax(1) == data.labels[at])
            yield
    return torch.cat(right)[: len(indices)] if right else torch.empty(0, dtype=torch.bool, device=device)


def evaluate(
    model: nn.Module,
    data: DomainSet,
    wanted: Mapping[str, Sequence[str]],
    size: int,
    *,
    batch: int = BATCH,
    precision: str = "fp32",
) -> Work[dict[str, Counts]]:
    """Counts for each split of the domains in ``wanted``, such as ``{"val": domains, "test": ["sketch"]}``."""
    parts = {split: {domain: data.select(domain, split) for domain in domains} for split, domains in wanted.items()}
    chosen = torch.zeros(len(data), dtype=torch.bool, device=data.images.device)
    for indices in (at for by_domain in parts.values() for at in by_domain.values()):
        chosen[indices.to(chosen.device)] = True
    at = chosen.nonzero()[:, 0]  # once, also where splits overlap
    right = torch.zeros(len(data), dtype=torch.bool, device=data.images.device)
    right[at] = yield from find_correct(model, data, at, size, batch=batch, precision=precision)
    right = right.cpu()
    return {
        split: {domain: [int(right[at.cpu()].sum()), len(at)] for domain, at in by_domain.items()}
        for split, by_domain in parts.items()
    }


@torch.inference_mode()
def _logits(model: nn.Module, images: Tensor, size: int, precision: str) -> Tensor:
    pictures = prepared(images, size).contiguous(memory_format=torch.channels_last)
    with autocast(images.device, precision):
        return model(pictures)
