"""Several processes of one run, started by ``torchrun``. Each computes a part of every batch, in the order of the ranks."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from efdm.errors import SettingError
from efdm.training.device import check_device, default_device


def processes() -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def wait_for_all() -> None:
    """Wait until every process has called this."""
    if dist.is_initialized():
        dist.barrier()


def check_divisible(batch: int) -> None:
    """Raise SettingError unless all processes get equal parts of a batch."""
    if batch % (world := processes()[1]):
        raise SettingError(f"batch must be a multiple of the {world} processes, got {batch}", "batch")


def own_rows(rows: Tensor) -> Tensor:
    """Return the rows of this process, given those of the whole batch."""
    rank, world = processes()
    return rows if world == 1 else rows.chunk(world)[rank]


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes. The gradient is the sum over all processes. Every process must call this."""
    if processes()[1] == 1:
        return rows
    if rows.ndim == 4 and rows.is_contiguous(memory_format=torch.channels_last):
        return _GatherRows.apply(rows.movedim(1, -1)).movedim(-1, 1)  # type: ignore[no-any-return, no-untyped-call]
    return _GatherRows.apply(rows)  # type: ignore[no-any-return, no-untyped-call]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return own_rows(total)


class WholeBatch(TorchFunctionMode):
    """Compute batch norms and dropout in this block for the whole batch, of which each process has an equal part.

    Batch norms exchange their statistics only. (`torch.nn.SyncBatchNorm` requires a GPU, and replaces modules that hooks and
    subclasses depend on.) Dropout draws for the whole batch, so it gathers its input.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.batch_norm:
            return _batch_norm(*args, **(kwargs or {}))
        if function is F.dropout:
            return own_rows(F.dropout(gather_rows(args[0]), *args[1:], **(kwargs or {})))
        return function(*args, **(kwargs or {}))


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Compute `torch.nn.functional.batch_norm` with the statistics of all processes."""
    if not training:
        return F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
    values = x if x.dtype == torch.float64 else x.float()
    others = [d for d in range(x.ndim) if d != 1]
    mean = gather_rows(values.mean(others, keepdim=True)).mean(0, keepdim=True)
    centred = values - mean
    variance = gather_rows(centred.square().mean(others, keepdim=True)).mean(0, keepdim=True)
    count = x.numel() // x.shape[1] * processes()[1]
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean.flatten().to(running_mean.dtype), momentum)
            running_var.lerp_((variance.flatten() * count / (count - 1)).to(running_var.dtype), momentum)
    scale = (variance + eps).rsqrt()
    shape = scale.shape
    out = centred * (scale if weight is None else scale * weight.view(shape))
    return (out if bias is None else out + bias.view(shape)).to(x.dtype)


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
    found = check_device(chosen)
    if launched and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.startswith("cuda") else "gloo")
    try:
        yield found
    finally:
        if dist.is_initialized():
            gc.collect()  # gloo may abort at exit while objects that used it are alive
            dist.destroy_process_group()
