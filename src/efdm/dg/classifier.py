"""A trained classifier as one file: weights, classes, input size and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from efdm.dg.settings import Settings
from efdm.nn import stages_of
from efdm.recognition.model_file import read_model, write_model

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
    more = {"classes": json.dumps(classes), "stored_size": str(stored_size or settings.size)}
    write_model(model, path, FORMAT, settings, **more)


def load_classifier(path: str | Path, device: str | torch.device = "cpu") -> Classifier:
    """Load a classifier from a file of `save_classifier` or from the folder of a finished run.

    No code in the file is executed.
    """
    model, metadata = read_model(Path(path), FORMAT, "a classifier", Settings, lambda m: len(json.loads(m["classes"])))
    size, stored_size = metadata["size"], metadata.get("stored_size") or metadata.get("kept") or metadata["size"]
    classes, settings = (json.loads(metadata[name]) for name in ("classes", "settings"))
    return Classifier(model.to(device), classes, int(size), settings, int(stored_size))
