"""The state of a training in one file: written whole or not at all, and only while its numbers are finite."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from efdm.style.step import Step


def checkpoint(phase: str, iteration: int, network: nn.Module, objective: nn.Module, step: Step) -> dict[str, Any]:
    """Everything that a run needs to go on."""
    heads = objective.heads.state_dict() if hasattr(objective, "heads") else {}  # type: ignore[union-attr, operator]
    return {
        "phase": phase, "iteration": iteration, "network": network.state_dict(), "heads": heads, "step": step.state(),
    }  # fmt: skip


def check_finite(content: Mapping[str, Any]) -> None:
    """Raise for weights that must not take the place of good ones."""
    if not all(bool(tensor.isfinite().all()) for tensor in _tensors(content)):
        wrong = f"the weights are no longer finite at iteration {content['iteration']} of {content['phase']}"
        raise FloatingPointError(f"{wrong}, and were not saved; try a lower --lr")


def write(content: Mapping[str, Any], path: Path) -> None:
    torch.save(content, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def restore(content: Mapping[str, Any], network: nn.Module, objective: nn.Module, step: Step) -> int:
    """Fill everything from a checkpoint; the iteration at which it was made."""
    network.load_state_dict(content["network"])
    if hasattr(objective, "heads"):
        objective.heads.load_state_dict(content["heads"])  # type: ignore[union-attr, operator]
    step.restore(content["step"])
    return int(content["iteration"])


def _tensors(content: object) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for part in content.values() if isinstance(content, Mapping) else content:
            yield from _tensors(part)
