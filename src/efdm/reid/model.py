"""A trained embedding network as one file: weights, input size and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from efdm.recognition.model_file import find_model, read_model, write_model
from efdm.reid.settings import Settings, public, read_settings, run_label

FORMAT = "efdm embedder 1"


class Embedder(NamedTuple):
    """A model in eval mode with its input size (height, width) and settings. See `efdm.reid.embed.extract`."""

    model: nn.Module
    size: tuple[int, int]
    settings: dict[str, Any]  # as stored; another version may have different names than `Settings`


def save_embedder(model: nn.Module, path: str | Path, *, people: int, settings: Settings) -> None:
    """Write weights and metadata as safetensors. ``people`` is the number of training people, the outputs of the model."""
    metadata = {
        "format": FORMAT, "backbone": settings.backbone, "people": str(people), "size": json.dumps(settings.size),
        "method": settings.method, "train_domains": json.dumps(settings.train_domains),
        "settings": json.dumps(public(settings)),
    }  # fmt: skip
    write_model(model, path, metadata)


def find_embedder(path: Path) -> Path:
    """Return the model file for ``path``, see `efdm.recognition.model_file.find_model`."""
    return find_model(path, lambda run: run_label(read_settings(run)))


def load_embedder(path: str | Path, device: str | torch.device = "cpu") -> Embedder:
    """Load a network that `save_embedder` wrote, or that of a finished run, given its folder.

    No code in the file is executed.
    """
    metadata, load = read_model(find_embedder(Path(path)), FORMAT, "an embedding network")
    height, width = json.loads(metadata["size"])
    return Embedder(load(int(metadata["people"]), device), (height, width), json.loads(metadata["settings"]))
