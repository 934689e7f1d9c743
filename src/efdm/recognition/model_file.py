"""A trained network as one safetensors file: weights, and metadata to build and use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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
    """Write weights and metadata atomically: the format, the settings, and the entries ``more`` of the task."""
    metadata = {
        "format": form, "backbone": settings.backbone, "size": json.dumps(settings.size), "method": settings.method,
        "train_domains": json.dumps(settings.train_domains), "settings": json.dumps(public(settings)), **more,
    }  # fmt: skip
    weights.write_tensors({k: v.detach().cpu() for k, v in model.state_dict().items()}, path, metadata)


def read_model(
    path: Path, form: str, what: str, cls: type[RecognitionSettings], outputs: Callable[[dict[str, str]], int]
) -> tuple[nn.Module, dict[str, str]]:
    """Return the network of a file in eval mode, and the metadata. No code in the file is executed.

    ``form`` is the format of the file and ``what`` its content in messages, such as "a classifier". ``path`` may be the
    folder of a run with settings ``cls``. ``outputs`` returns the number of outputs of the network from the metadata.
    """
    path = find_model(path, cls)
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}; a finished run contains {what} as {MODEL}")
    metadata = weights.metadata(path)
    if metadata.get("format") != form:
        problem = f"not {what} (format {metadata.get('format', 'none')}, expected {form})"
        raise DamagedFileError(path, problem, f"pass the {MODEL} of a finished run")
    model = build_backbone(metadata["backbone"], outputs(metadata))
    model.load_state_dict(weights.read(path))
    return model.to(memory_format=torch.channels_last).eval(), metadata  # type: ignore[call-overload]


def find_model(path: Path, cls: type[RecognitionSettings]) -> Path:
    """Return the model file for ``path``, which may be the file itself or the folder of a run.

    Raise ValueError with a list of the runs if the folder holds several.
    """
    if not path.is_dir():
        return path
    runs = sorted(file.parent for pattern in (f"*/{MODEL}", f"*/*/{MODEL}") for file in path.glob(pattern))
    if not runs or (path / MODEL).exists():
        return path / MODEL
    shown = [f"{run} ({run_label(read_settings(cls, run))})" if (run / FILE).exists() else str(run) for run in runs[:3]]
    raise ValueError(f"{path} holds {plural(len(runs), 'run')}; choose one: {first_few([*shown, *map(str, runs[3:])])}")
