"""A trained network as one safetensors file: weights, and metadata that say how to build and use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from efdm.errors import DamagedFileError
from efdm.models import weights
from efdm.models.backbones import build_backbone
from efdm.text import first_few
from efdm.training.settings import FILE

MODEL = "model.safetensors"  # file name in the folder of a finished run


def write_model(model: nn.Module, path: str | Path, metadata: Mapping[str, str]) -> None:
    """Write weights and metadata atomically. The metadata must have "format" and "backbone"."""
    weights.write_tensors({k: v.detach().cpu() for k, v in model.state_dict().items()}, path, dict(metadata))


class ModelFile(NamedTuple):
    """The metadata of a file, and a function of the number of classes and a device that loads the network in eval mode."""

    metadata: dict[str, str]
    load: Callable[[int, str | torch.device], nn.Module]


def read_model(path: Path, form: str, what: str) -> ModelFile:
    """Read a file of the format ``form``, which holds ``what``, such as "a classifier". No code in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}; a finished run contains {what} as {MODEL}")
    metadata = weights.metadata(path)
    if metadata.get("format") != form:
        raise DamagedFileError(path, f"not {what}", f"give the {MODEL} of a finished run")

    def load(classes: int, device: str | torch.device) -> nn.Module:
        model = build_backbone(metadata["backbone"], classes)
        model.load_state_dict(weights.read(path))
        return model.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload, no-any-return]

    return ModelFile(metadata, load)


def find_model(path: Path, label: Callable[[Path], str]) -> Path:
    """Return the model file for ``path``, which may be the file itself or the folder of a run.

    Raise ValueError with a list of the runs, each with its ``label``, if the folder holds several.
    """
    if not path.is_dir() or (path / MODEL).exists():
        return path / MODEL if path.is_dir() else path
    runs = sorted(found.parent for pattern in (f"*/{MODEL}", f"*/*/{MODEL}") for found in path.glob(pattern))
    if not runs:
        return path / MODEL
    shown = [f"{run} ({label(run)})" if (run / FILE).exists() else str(run) for run in runs[:3]]
    raise ValueError(f"{path} holds {len(runs)} runs; choose one: {first_few([*shown, *map(str, runs[3:])])}")
