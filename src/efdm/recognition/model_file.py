"""A trained network as one safetensors file: weights, and metadata to build and use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from efdm.errors import DamagedFileError
from efdm.models import weights
from efdm.models.backbones import build_backbone
from efdm.recognition.settings import RecognitionSettings, run_label
from efdm.text import first_few, plural
from efdm.training.settings import FILE, public, read_settings

MODEL = "model.safetensors"  # file name in the folder of a finished run


def write_model(model: nn.Module, path: str | Path, form: str, settings: RecognitionSettings, **more: str) -> None:
    """Write weights and metadata atomically: the format, the settings, and what the task adds."""
    metadata = {
        "format": form, "backbone": settings.backbone, "size": json.dumps(settings.size), "method": settings.method,
        "train_domains": json.dumps(settings.train_domains), "settings": json.dumps(public(settings)), **more,
    }  # fmt: skip
    weights.write_tensors({k: v.detach().cpu() for k, v in model.state_dict().items()}, path, metadata)


class ModelFile(NamedTuple):
    """The metadata of a file, and a function of classes and device that loads the network in eval mode."""

    metadata: dict[str, str]
    load: Callable[[int, str | torch.device], nn.Module]


def read_model(path: Path, form: str, what: str, settings: type[RecognitionSettings]) -> ModelFile:
    """Read a file of the format ``form``, which holds ``what``, such as "a classifier". No code in it is executed.

    ``path`` may be the folder of a run with these ``settings``.
    """
    path = find_model(path, settings)
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


def find_model(path: Path, settings: type[RecognitionSettings]) -> Path:
    """Return the model file for ``path``, which may be the file itself or the folder of a run.

    Raise ValueError with a list of the runs if the folder holds several.
    """
    if not path.is_dir() or (path / MODEL).exists():
        return path / MODEL if path.is_dir() else path
    runs = sorted(found.parent for pattern in (f"*/{MODEL}", f"*/*/{MODEL}") for found in path.glob(pattern))
    if not runs:
        return path / MODEL
    shown = [f"{run} ({run_label(read_settings(settings, run))})" if (run / FILE).exists() else str(run) for run in runs[:3]]
    raise ValueError(f"{path} holds {plural(len(runs), 'run')}; choose one: {first_few([*shown, *map(str, runs[3:])])}")
