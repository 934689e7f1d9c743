"""A trained embedding network as one file: weights, input size and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from efdm.recognition.model_file import read_model, write_model
from efdm.reid.settings import Settings

FORMAT = "efdm embedder 1"


class Embedder(NamedTuple):
    """A model in eval mode with its input size (height, width) and settings. See `efdm.reid.extract`."""

    model: nn.Module
    size: tuple[int, int]
    settings: dict[str, Any]  # as stored; another version may have different names than `Settings`


def save_embedder(model: nn.Module, path: str | Path, *, people: int, settings: Settings) -> None:
    """Write weights and metadata as safetensors. ``people`` is the number of training people, the outputs of the model."""
    write_model(model, path, FORMAT, settings, people=str(people))


def load_embedder(path: str | Path, device: str | torch.device = "cpu") -> Embedder:
    """Load a network from a file of `save_embedder` or from the folder of a finished run.

    No code in the file is executed.
    """
    model, metadata = read_model(Path(path), FORMAT, "an embedding network", Settings, lambda m: int(m["people"]))
    height, width = json.loads(metadata["size"])
    return Embedder(model.to(device), (height, width), json.loads(metadata["settings"]))
