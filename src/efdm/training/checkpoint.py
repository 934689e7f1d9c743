"""The state of a training in one file: written whole or not at all, and only while its numbers are finite. And the folder
of a run: whether one can begin there, and that nobody else does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.files import atomic_write

SECONDS = 300.0  # a checkpoint is never older than this and one step: what a machine that stops without a word may cost
OF_THE_DEVICE = ("lr", "fused", "capturable")  # options of an optimizer that a run on another device does not take over


def check_finite(content: Mapping[str, Any], when: str) -> None:
    """Raise for weights that must not take the place of good ones; ``when`` is told."""
    if not all(bool(tensor.isfinite().all()) for tensor in _tensors(content)):
        raise FloatingPointError(f"the weights are no longer finite at {when}, and were not saved; try a lower --lr")


def write(content: Mapping[str, Any], path: Path) -> None:
    with atomic_write(path) as file:
        torch.save(content, file)


def restore_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Fill an optimizer from the ``state_dict`` of another, which may have been on another device."""
    # before it is loaded: they decide where the optimizer keeps its count of steps
    own = [{name: group[name] for name in OF_THE_DEVICE if name in group} for group in optimizer.param_groups]
    groups = [{**theirs, **mine} for theirs, mine in zip(state["param_groups"], own, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """In place where the rate is a tensor: a recorded graph reads it there."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _tensors(content: object) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for part in content.values() if isinstance(content, Mapping) else content:
            yield from _tensors(part)
