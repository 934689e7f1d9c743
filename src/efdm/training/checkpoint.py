"""The state of a run in one file, ``checkpoint.pt``: written atomically, checked when it is read."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from efdm.errors import DamagedFileError
from efdm.files import atomic_write

KEYS = ("phase", "iteration", "losses", "seconds", "devices", "data", "step")
REMEDY = "restore a copy of it, or delete it and start the run again"


def write_checkpoint(state: Mapping[str, Any], path: Path) -> None:
    with atomic_write(path) as file:
        torch.save(state, file)


def read_checkpoint(path: Path, device: str) -> dict[str, Any]:
    """Return the state in ``path``. Raise DamagedFileError if its checksums do not match or it is not a checkpoint."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch.save writes a zip with CRC-32 checksums, which torch.load ignores
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"wrong checksum of {damaged}")
        state = torch.load(path, map_location=device, weights_only=True)
        return {key: state[key] for key in KEYS}
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError, LookupError, TypeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DamagedFileError(path, f"the checkpoint is damaged ({reason})", REMEDY) from error


def is_finite(state: object) -> bool:
    """Return True if all tensors nested in ``state`` are finite."""
    if isinstance(state, Tensor):
        return bool(state.isfinite().all())
    parts = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
    return all(map(is_finite, parts))
