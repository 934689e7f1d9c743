"""Checks that need no pictures, made before a recipe's pictures are read."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from efdm.data.datasets import DIGITS, PACS, check_domains, list_domains, load_dataset
from efdm.data.domains import DomainSet
from efdm.data.images import file_error
from efdm.dg.methods import check_method
from efdm.dg.settings import Settings
from efdm.errors import SettingError
from efdm.lab.recipe import Recipe
from efdm.lab.sweep import RECIPE, check_folder
from efdm.models.backbones import build_backbone
from efdm.progress import Report, ignore
from efdm.training.device import check_device, default_device, device_defaults


class Sweep(NamedTuple):
    """The arguments of `efdm.lab.run`: a recipe, its pictures and the settings that override the recipe's."""

    recipe: Recipe
    data: DomainSet
    changes: dict[str, Any]


def prepare_sweep(
    recipe: Recipe,
    sources: Sequence[Path],
    out: Path,
    *,
    methods: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    pacs: Mapping[str, Any],
    changes: Mapping[str, Any],
    progress: Report = ignore,
) -> Sweep:
    """Check the arguments of `efdm.lab.run`, then read the pictures of the recipe.

    ``pacs`` are options of `load_pacs` (``split``, ``lists``, ``copy``); a recipe for other data takes none. Device,
    precision and speed default to what suits this machine.
    """
    check_folder(out)
    check_writable(out)
    _check_sources(recipe, sources, pacs)
    for row in methods or ():
        check_method("methods", row, recipe.rows)
    if domains:
        check_domains("domains", domains, list_domains(recipe.data, sources))
    settings = {**recipe.settings, **changes}
    device = choose_device(settings.get("device"))
    changes = {**device_settings(device, settings, runs="many"), **changes, "device": device}
    if not (out / RECIPE).exists():  # a started sweep does not need the weights again
        check_backbone(settings)
    size = changes.get("size") or recipe.picture_size or settings.get("size", Settings.size)
    data = load_dataset(recipe.data, sources, size, progress=progress, **pacs)
    # runs on another split or on a part of PACS must not be taken for runs on PACS
    special = ["own split"] * (pacs.get("split") == "own") + ["partial copy"] * (pacs.get("copy") == "partial")
    return Sweep(replace(recipe, data=", ".join([recipe.data, *special])), data, changes)


def _check_sources(recipe: Recipe, sources: Sequence[Path], pacs: Mapping[str, Any]) -> None:
    if pacs and recipe.data != PACS:
        raise SettingError(f"{' and '.join(pacs)} apply to PACS only; the data of {recipe.name} is {recipe.data}", [*pacs])
    if recipe.data == DIGITS and sources:
        raise SettingError(f"{recipe.name} generates its digits and takes no data", "data")
    if recipe.data != DIGITS and not sources:
        raise SettingError(f"{recipe.name} needs the pictures of {recipe.data}: a folder or zips", "data")
    for source in sources:
        if not source.exists():
            raise file_error(FileNotFoundError(), source)


def check_writable(folder: Path) -> None:
    """Raise if ``folder``, or its closest existing parent, is read-only. Creates nothing."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise file_error(PermissionError(), folder)


def choose_device(name: str | None = None) -> str:
    """Return ``name``, or the default device; raise `SettingError` if it cannot be used."""
    device = name or default_device()
    check_device(device)
    return device


def device_settings(device: str, known: Mapping[str, Any], *, runs: Literal["one", "many"] = "one") -> dict[str, Any]:
    """Return the settings that suit a device, without those already in ``known``.

    For many runs on a GPU, steps are compiled if triton is installed: the runs share the minute that it takes.
    """
    made: dict[str, Any] = {**device_defaults(device)}
    if not device.startswith("cuda"):
        made["log_every"] = 10
    elif runs == "many" and importlib.util.find_spec("triton") is not None:
        made["speed"] = "compile+graph"
    return {name: value for name, value in made.items() if name not in known}


def check_backbone(settings: Mapping[str, Any]) -> nn.Module:
    """Build the backbone with its weights and raise `SettingError` if it does not accept pictures of the given size."""
    name, size = settings.get("backbone", Settings.backbone), settings.get("size", Settings.size)
    model = build_backbone(name, 2, weights=settings.get("weights", Settings.weights))
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, 3, size, size))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise SettingError(f"{name} does not accept pictures of {size} x {size} pixels ({reason})", "size") from error
    return model.train()
