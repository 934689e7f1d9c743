"""What the preparation of all tasks has in common: checks that need no pictures, and defaults of this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from efdm.data.memory import SMALLER, check_memory
from efdm.errors import SettingError
from efdm.lab.folder import RECIPE, check_sweep_folder
from efdm.lab.plan import expand
from efdm.lab.recipe import Recipe
from efdm.models.backbones import build_backbone
from efdm.nn import find_stage, stages_at
from efdm.recognition.pixels import height_and_width
from efdm.recognition.settings import AnySettings, RecognitionSettings
from efdm.training.checkpoint import read_checkpoint
from efdm.training.device import check_device, default_device, device_defaults
from efdm.training.folder import CHECKPOINT, DONE, check_folder
from efdm.training.settings import check_same_run, read_settings

METHOD = "efdmix-flow"  # the default of both tasks
FEATURE_BYTES = 512  # per pixel: two layers of 64 channels, as in VGG; a step of training needs several times as much


def sweep_settings(
    recipe: Recipe, out: Path, changes: Mapping[str, Any], methods: Sequence[str] | None, domains: Sequence[str]
) -> dict[str, Any]:
    """Return ``changes`` with defaults for this machine. Raise for an invalid folder, setting, device or backbone."""
    check_sweep_folder(out)
    for _, planned in expand(recipe, domains, methods=methods, **changes):
        planned.check()
    settings = {**recipe.settings, **changes}
    machine = device_settings(settings, runs="many")
    if not (out / RECIPE).exists():  # a started sweep does not need the weights again
        check_backbone(settings, recipe.task_row.settings)
    return {**changes, **machine}


def check_run_folder(out: Path, *, resume: bool) -> bool:
    """Raise if a run can neither start nor, with ``resume``, continue in ``out``. Return True if it is finished."""
    if (out / RECIPE).exists():
        raise SettingError(f"{out} holds the runs of a recipe; choose another folder", "out")
    if resume and (out / DONE).exists():
        return True
    check_folder(out, resume=resume)
    return False


def resumed(cls: type[AnySettings], out: Path, changes: Mapping[str, Any]) -> AnySettings:
    """Return the settings of the run in ``out``. Raise if ``changes`` differ from them, or for a damaged checkpoint."""
    before = read_settings(cls, out)
    settings = replace(before, **changes)  # type: ignore[type-var]
    check_device(settings.device)
    check_same_run(settings, out)
    if not (out / DONE).exists():
        read_checkpoint(out / CHECKPOINT, "cpu")  # a damaged one is reported before pictures are read
    return settings


def device_settings(known: Mapping[str, Any], *, runs: Literal["one", "many"] = "one") -> dict[str, Any]:
    """Return the device and its default settings, except those in ``known``. Raise SettingError for an unavailable device.

    For many runs on a GPU, steps are compiled if triton is installed, because all runs share the minute of compilation.
    """
    device = known.get("device", default_device())
    check_device(device)
    defaults: dict[str, Any] = {**device_defaults(device)}
    if not device.startswith("cuda"):
        defaults["log_every"] = 10
    elif runs == "many" and importlib.util.find_spec("triton") is not None:
        defaults["speed"] = "compile+graph"
    return {"device": device, **{name: value for name, value in defaults.items() if name not in known}}


def choose_stages(known: Mapping[str, Any], cls: type[RecognitionSettings], most: int | None = None) -> tuple[str, ...]:
    """Return the stages in ``known``, by default the first ``most`` at strides 4, 8, 16. Raise for an unknown stage."""
    model = check_backbone(known, cls)
    stages = tuple(known.get("stages") or (stages_at(model) or RecognitionSettings.stages)[:most])
    if "stages" in known or cls.methods[known["method"]].inserts_layers():
        for stage in stages:
            find_stage(model, stage)
    return stages


def check_backbone(known: Mapping[str, Any], cls: type[RecognitionSettings]) -> nn.Module:
    """Return the backbone with its weights. Raise `SettingError` if it does not accept pictures of the input size."""
    name, weights = known.get("backbone", cls.backbone), known.get("weights", cls.weights)
    height, width = height_and_width(known.get("size", cls.size))
    pixels = f"{height} x {width} pixels"
    check_memory(FEATURE_BYTES * height * width, f"features of a picture of {pixels}", remedy=SMALLER)
    model = build_backbone(name, 2, weights=weights)
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, 3, height, width))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise SettingError(f"{name} does not accept pictures of {pixels} ({reason})", "size") from error
    return model.train()
