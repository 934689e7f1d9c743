"""A trained classifier as one file: weights, classes, input size and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from efdm.dg.settings import Settings, public, read_settings, run_label
from efdm.errors import DamagedFileError
from efdm.models import weights
from efdm.models.backbones import build_backbone
from efdm.nn import stages_of
from efdm.text import first_few
from efdm.training.settings import FILE

MODEL = "model.safetensors"
FORMAT = "efdm classifier 1"


class Classifier(NamedTuple):
    """A model in eval mode with its classes, input size and settings.

    Training images were stored at ``stored_size``; resize others to it first for predictions that agree with the records.
    """

    model: nn.Module
    classes: list[str]
    size: int
    settings: dict[str, Any]  # as stored; another version may have different names than `Settings`
    stored_size: int

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of the model, shallow to deep; empty for an unknown model family."""
        return tuple(stages_of(self.model)) or tuple(getattr(self.model, "stage_names", ()))


def save_classifier(
    model: nn.Module, path: str | Path, *, classes: list[str], settings: Settings, stored_size: int = 0
) -> None:
    """Write weights and metadata as safetensors. ``stored_size`` defaults to the input size."""
    metadata = {
        "format": FORMAT, "backbone": settings.backbone, "classes": json.dumps(classes), "size": str(settings.size),
        "method": settings.method, "train_domains": json.dumps(settings.train_domains),
        "settings": json.dumps(public(settings)), "stored_size": str(stored_size or settings.size),
    }  # fmt: skip
    weights.write_tensors({k: v.detach().cpu() for k, v in model.state_dict().items()}, path, metadata)


def find_classifier(path: Path) -> Path:
    """Return the model file for ``path``, which may be the file itself or the folder of a run.

    Raise ValueError with a list of the runs if the folder holds several.
    """
    if not path.is_dir() or (path / MODEL).exists():
        return path / MODEL if path.is_dir() else path
    runs = sorted(found.parent for pattern in (f"*/{MODEL}", f"*/*/{MODEL}") for found in path.glob(pattern))
    if not runs:
        return path / MODEL
    shown = [f"{run} ({run_label(read_settings(run))})" if (run / FILE).exists() else str(run) for run in runs[:3]]
    raise ValueError(f"{path} holds {len(runs)} runs; choose one: {first_few([*shown, *map(str, runs[3:])])}")


def load_classifier(path: str | Path, device: str | torch.device = "cpu") -> Classifier:
    """Load a classifier that `save_classifier` wrote, or that of a finished run, given its folder.

    No code in the file is executed.
    """
    path = find_classifier(Path(path))
    if not path.is_file():
        raise FileNotFoundError(f"file not found: {path}; a finished run contains its classifier as {MODEL}")
    metadata = weights.metadata(path)
    if metadata.get("format") != FORMAT:
        raise DamagedFileError(path, "not a classifier", f"give the {MODEL} of a finished run")
    classes = json.loads(metadata["classes"])
    model = build_backbone(metadata["backbone"], len(classes))
    model.load_state_dict(weights.read(path))
    model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stored_size = int(metadata.get("stored_size") or metadata.get("kept") or metadata["size"])
    return Classifier(model.eval(), classes, int(metadata["size"]), json.loads(metadata["settings"]), stored_size)
