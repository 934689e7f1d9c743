"""A trained classifier as a file that can be passed on: weights, and what is needed to use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from efdm.dg.settings import Settings, public, read_settings, run_label
from efdm.models.backbones import build_backbone
from efdm.models.weights import write_tensors
from efdm.nn import stages_of
from efdm.text import first_few
from efdm.training.settings import FILE

MODEL = "model.safetensors"
FORMAT = "efdm classifier 1"


class Classifier(NamedTuple):
    """A model in eval mode, the names of its classes, the size that it sees pictures at, how it was trained, and the size
    that its pictures were kept at: whoever brings others to that size first sees them as its records do."""

    model: nn.Module
    classes: list[str]
    size: int
    settings: dict[str, Any]  # as they were: of another version, they may have other names than `Settings`
    stored_size: int

    @property
    def stages(self) -> tuple[str, ...]:
        """All stages of the model, shallow to deep: those of its family, or those that it names itself; else none."""
        return tuple(stages_of(self.model)) or tuple(getattr(self.model, "stage_names", ()))


def save_classifier(
    model: nn.Module, path: str | Path, *, classes: list[str], settings: Settings, stored_size: int = 0
) -> None:
    """Write safetensors with metadata: backbone, classes, size, method, training domains and all other settings; and the
    size that pictures were stored at, where that is another."""
    told = {
        "format": FORMAT, "backbone": settings.backbone, "classes": json.dumps(classes), "size": str(settings.size),
        "method": settings.method, "train_domains": json.dumps(settings.train_domains),
        "settings": json.dumps(public(settings)), "stored_size": str(stored_size or settings.size),
    }  # fmt: skip
    write_tensors({k: v.detach().cpu() for k, v in model.state_dict().items()}, path, told)


def find_classifier(path: Path) -> Path:
    """Return the model file that ``path`` means: the file itself, or the one in the folder of a run.

    For a folder of several runs, raises an error that lists them.
    """
    if not path.is_dir() or (path / MODEL).exists():
        return path / MODEL if path.is_dir() else path
    runs = sorted(found.parent for pattern in (f"*/{MODEL}", f"*/*/{MODEL}") for found in path.glob(pattern))
    if not runs:
        return path / MODEL
    shown = [f"{run} ({run_label(read_settings(run))})" if (run / FILE).exists() else str(run) for run in runs[:3]]
    raise ValueError(f"{path} holds {len(runs)} runs; choose one: {first_few([*shown, *map(str, runs[3:])])}")


def load_classifier(path: str | Path, device: str | torch.device = "cpu") -> Classifier:
    """The classifier that `save_classifier` wrote. Metadata is read, nothing in it is run."""
    from safetensors import safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; a training leaves its classifier as model.safetensors")
    try:
        with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
            told = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except Exception as error:  # safetensors has its own kind of error
        raise ValueError(f"{path} cannot be read as safetensors ({error}); give a file that a training wrote") from error
    if told.get("format") != FORMAT:
        raise ValueError(f"{path} is not a classifier of ours; give the model.safetensors that a training left")
    classes = json.loads(told["classes"])
    model = build_backbone(told["backbone"], len(classes))
    model.load_state_dict(state)
    model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stored_size = int(told.get("stored_size", told["size"]))  # older files do not tell
    return Classifier(model.eval(), classes, int(told["size"]), json.loads(told["settings"]), stored_size)
