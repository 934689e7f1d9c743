"""Several processes of one run, started by ``torchrun``: ranks, averaged losses, averaged gradients."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from efdm.training.device import check_device, default_device


def processes() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def mean_losses(losses: Mapping[str, Tensor]) -> dict[str, float]:
    """Return losses as numbers, averaged over all processes. Every process must call this."""
    values = torch.stack([value.float() for value in losses.values()])
    if dist.is_initialized():
        dist.all_reduce(values)
        values /= dist.get_world_size()
    return dict(zip(losses, values.tolist(), strict=True))


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Average gradients over all processes in a single message, which is fast because the networks are small."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@contextmanager
def process_group(device: str = "") -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, if any, and yield the device of this process.

    On GPUs the device is the one with the local rank of the process. The group is destroyed at the end.
    """
    chosen, launched = device or default_device(), "RANK" in os.environ
    if launched and chosen.startswith("cuda"):
        chosen = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(chosen)
    check_device(chosen)
    if launched and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.startswith("cuda") else "gloo")
    try:
        yield torch.device(chosen)
    finally:
        if dist.is_initialized():
            gc.collect()  # gloo may abort at exit while objects that used it are alive
            dist.destroy_process_group()
