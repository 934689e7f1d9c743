"""Fit checkpoints to modules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor, nn

from efdm.errors import SettingError
from efdm.text import first_few

Module = TypeVar("Module", bound=nn.Module)


def load_state(module: Module, name: str, state: Mapping[str, Tensor], *, optional: tuple[str, ...] = ()) -> Module:
    """Load ``state`` into a module, converted to the dtype of its parameters, and return the module.

    Raises ValueError if a key is missing or unexpected or a shape differs. Keys that start with ``optional`` may be missing.
    """
    own = module.state_dict()
    # old checkpoints have no batch counters, which matter only for cumulative running averages
    missing = [k for k in own if k not in state and not k.startswith(optional) and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    wrong = [k for k in own if k in state and state[k].shape != own[k].shape]
    problems = [f"{word} {first_few(keys)}" for word, keys in (("missing", missing), ("unexpected", unexpected)) if keys]
    if wrong:
        problems.append(f"{wrong[0]} has shape {tuple(state[wrong[0]].shape)}, expected {tuple(own[wrong[0]].shape)}")
    if problems:
        raise ValueError(f"the checkpoint does not fit {name}: {'; '.join(problems)}")
    module.load_state_dict(state, strict=False)
    return module


def rename_layers(state: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the state with the layer name of every key (all but its last part) replaced as in ``names``."""
    parts = ((*key.rpartition("."), value) for key, value in state.items())
    return {f"{names.get(layer, layer)}{dot}{parameter}": value for layer, dot, parameter, value in parts}


@contextmanager
def naming_file(path: str | os.PathLike[str], *settings: str) -> Iterator[None]:
    """Prefix the message of a ValueError in the ``with`` block with the file, and name the settings that can resolve it."""
    try:
        yield
    except ValueError as error:
        raise SettingError(f"{path}: {error}", settings) from error
