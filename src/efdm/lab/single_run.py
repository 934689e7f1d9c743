"""Train one classifier on your own pictures, with defaults that follow the pictures, the backbone and the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from efdm.data.datasets import DIGITS, Listing, check_domains, list_domains, load_dataset
from efdm.data.domains import DomainSet
from efdm.dg import METHODS, Settings
from efdm.dg.methods import check_method, mixes
from efdm.dg.settings import check, read_settings
from efdm.errors import SettingError
from efdm.lab.preparation import check_backbone, check_writable, choose_device, device_settings
from efdm.lab.recipe import load_recipe
from efdm.lab.sweep import RECIPE
from efdm.models.backbones import BACKBONES
from efdm.nn import find_stage, stages_at
from efdm.progress import Report, ignore
from efdm.training.files import write_json
from efdm.training.folder import DONE, check_folder
from efdm.training.settings import check_same_run

EPOCHS, MIN_ITERATIONS, MAX_ITERATIONS = 50, 300, 5000  # paper: 50 epochs, about 5,000 iterations for PACS
DEFAULTS: Mapping[str, Any] = {"method": "efdmix", "backbone": "resnet18.tv_in1k", "weights": "timm"}
PICTURES = "pictures.json"  # in the folder of a run: classes, counts and skipped pictures


class ClassifierRun(NamedTuple):
    """The arguments of `efdm.dg.train`: settings and pictures. ``data`` is None if the run is finished."""

    settings: Settings
    data: DomainSet | None


def dataset_name(sources: Sequence[Path]) -> str:
    """Return "digits" if that is the only source, otherwise "folder". A folder named digits is written ``./digits``."""
    return DIGITS if [str(source) for source in sources] == [DIGITS] else "folder"


def default_settings(dataset: str, backbone: str | None = None) -> dict[str, Any]:
    """Return the default settings: the recipe's for digits, otherwise `DEFAULTS`, with random weights for `BACKBONES`."""
    if dataset == DIGITS:
        recipe = load_recipe("digits_demo").settings
        return {"method": DEFAULTS["method"], **{name: value for name, value in recipe.items() if name != "device"}}
    return {**DEFAULTS, "weights": "random"} if backbone in BACKBONES else dict(DEFAULTS)


def prepare_classifier(
    sources: Sequence[Path], out: Path, changes: Mapping[str, Any], *, resume: bool = False, progress: Report = ignore
) -> ClassifierRun:
    """Return the settings and pictures of a run in ``out``. All checks that need no pictures come before reading them.

    ``changes`` are settings; the others follow the data set, the backbone, the number of pictures and the device. With
    ``resume``, the settings are those of the run, and ``changes`` may only repeat them or choose another device.
    """
    dataset = dataset_name(sources)
    finished = resume and (out / DONE).exists()
    if not finished:
        _check_folder(out, resume=resume)
    if resume:
        before = read_settings(out)
        device = choose_device(changes.get("device") or before.device)
        settings = replace(before, **{**changes, "device": device})
        check_same_run(settings, out)
        data = None if finished else load_dataset(dataset, sources, settings.size, progress=progress)
        return ClassifierRun(settings, data)
    device = choose_device(changes.get("device"))
    known = {**default_settings(dataset, changes.get("backbone")), **changes, "device": device}
    check_method("method", known["method"])
    known |= {"data": dataset if dataset == DIGITS else ", ".join(source.resolve().name for source in sources)}
    known |= _domains(list_domains(dataset, sources), changes)
    known |= device_settings(device, known)
    check(_settings(known, Settings.batch))
    known["stages"] = _stages(known)
    data = load_dataset(dataset, sources, known.get("size", Settings.size), progress=progress)
    settings = _settings(known, len(data.select(known["train_domains"], "train")))
    check(settings)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / PICTURES, {"classes": data.classes, "pictures": data.counts("split"), "skipped": data.skipped})
    return ClassifierRun(settings, data)


def _check_folder(out: Path, *, resume: bool) -> None:
    if (out / RECIPE).exists():
        raise SettingError(f"{out} holds the runs of a recipe; choose another folder", "out")
    check_folder(out, resume=resume)
    check_writable(out)


def _domains(listing: Listing, changes: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the training and test domains; each defaults to the domains that the other does not name."""
    for name in ("train_domains", "test_domains"):
        check_domains(name, changes.get(name) or (), listing)
    test = changes.get("test_domains")
    train = changes.get("train_domains") or [domain for domain in listing.domain_names if domain not in (test or ())]
    if not train:
        raise SettingError("test_domains leaves no domain to train on; name fewer", "test_domains")
    if test is None:
        test = [domain for domain in listing.domain_names if domain not in train]
    return {"train_domains": tuple(train), "test_domains": tuple(test)}


def _stages(known: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the given stages, or those of the backbone at strides 4, 8 and 16; raise for a stage it does not have."""
    model = check_backbone(known)
    stages = tuple(known.get("stages") or stages_at(model) or Settings.stages)
    if "stages" in known or mixes(known["method"]):
        for stage in stages:
            find_stage(model, stage)
    return stages


def _settings(known: Mapping[str, Any], count: int) -> Settings:
    """Return settings whose batch and iterations suit ``count`` training pictures, unless ``known`` has them."""
    batches = METHODS[known["method"]].batches
    made: dict[str, Any] = {"batches": batches, "batch": min(Settings.batch, max(1, count))}
    if batches == "domains":
        made |= {"domains_per_batch": min(2, len(known["train_domains"])), "batch": made["batch"] // 2 * 2}
    batch = known.get("batch", made["batch"])
    made["iterations"] = min(MAX_ITERATIONS, max(MIN_ITERATIONS, EPOCHS * count // max(1, batch)))
    return Settings(**{**made, **known})
