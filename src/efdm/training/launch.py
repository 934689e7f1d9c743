"""Processes that ``torchrun`` starts for one run."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from efdm.training.device import check_device, default_device


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
