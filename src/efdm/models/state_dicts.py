"""Check that a checkpoint fits a module."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from efdm.text import first_few


def check_state(module: nn.Module, state: Mapping[str, Tensor], *, optional: tuple[str, ...] = ()) -> None:
    """Raise unless ``state`` fits the state dict of ``module``. Keys that start with ``optional`` may be missing."""
    own = module.state_dict()
    # old checkpoints have no batch counters, which matter only for cumulative running averages
    missing = [k for k in own if k not in state and not k.startswith(optional) and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    wrong = [k for k in own if k in state and state[k].shape != own[k].shape]
    problems = []
    if missing:
        problems.append(f"has no {first_few(missing)}")
    if unexpected:
        problems.append(f"has unexpected {first_few(unexpected)}")
    if wrong:
        problems.append(f"has {wrong[0]} with shape {tuple(state[wrong[0]].shape)}, expected {tuple(own[wrong[0]].shape)}")
    if problems:
        raise ValueError(f"the checkpoint {' and '.join(problems)}; it may belong to another model")
