"""What a training of style transfer keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from efdm.style.step import Step


def checkpoint(phase: str, iteration: int, network: nn.Module, objective: nn.Module, step: Step) -> dict[str, Any]:
    """Everything that a run needs to go on."""
    heads = objective.heads.state_dict() if hasattr(objective, "heads") else {}  # type: ignore[union-attr, operator]
    return {
        "phase": phase, "iteration": iteration, "network": network.state_dict(), "heads": heads, "step": step.state(),
    }  # fmt: skip


def restore(content: Mapping[str, Any], network: nn.Module, objective: nn.Module, step: Step) -> int:
    """Fill everything from a checkpoint; the iteration at which it was made."""
    network.load_state_dict(content["network"])
    if hasattr(objective, "heads"):
        objective.heads.load_state_dict(content["heads"])  # type: ignore[union-attr, operator]
    step.restore(content["step"])
    return int(content["iteration"])
