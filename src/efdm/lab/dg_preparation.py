"""Prepare a sweep or a single run of domain generalization."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from efdm.data.datasets import DIGITS, PACS, Listing, check_domains, list_domains, load_dataset
from efdm.data.domains import DomainSet, Storage
from efdm.data.folders import without_folders
from efdm.dg import METHODS, Settings
from efdm.dg.training import check_classes
from efdm.errors import SettingError
from efdm.lab.preparation import METHOD, check_run_folder, choose_stages, device_settings, resumed, sweep_settings
from efdm.lab.protocols import Cell
from efdm.lab.recipe import Recipe, load_recipe
from efdm.lab.sweep import check_sources, load_data
from efdm.lab.tasks import TASKS
from efdm.models.backbones import BACKBONES
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.training.files import write_json
from efdm.training.fit import check_same_data
from efdm.training.folder import ENVIRONMENT

EPOCHS, MIN_ITERATIONS, MAX_ITERATIONS = 50, 300, 5000  # paper: 50 epochs, about 5,000 iterations for PACS
DEFAULTS: Mapping[str, Any] = {"method": METHOD, "backbone": "resnet18.tv_in1k", "weights": "timm"}
# options of PACS that are part of the data's name: such runs must not be mistaken for runs on PACS
SPECIAL = {("split", "own"): "own split", ("copy", "partial"): "partial copy"}
PICTURES_FILE = "pictures.json"  # file in the folder of a run with classes, counts and skipped pictures


def prepare_dg_sweep(
    recipe: Recipe,
    sources: Sequence[Path],
    out: Path,
    *,
    methods: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    pacs: Mapping[str, Any],
    changes: Mapping[str, Any],
    storage: Storage = "memory",
    progress: Report = ignore,
) -> tuple[Recipe, DomainSet, dict[str, Any]]:
    """Return the recipe, its pictures and the settings that override the recipe's: the arguments of `efdm.lab.run`.

    ``pacs`` are options of `load_pacs` (``split``, ``lists``, ``copy``); a recipe for other data takes none. ``storage`` is
    that of `load_domains`. Device, precision and speed have defaults for this machine.
    """
    if pacs and recipe.data != PACS:
        raise SettingError(f"only PACS has {' and '.join(pacs)}; the data of {recipe.name} is {recipe.data}", [*pacs])
    check_sources(recipe, sources)
    check_outside(out, sources)
    listing = list_domains(recipe.data, sources)
    if domains:
        check_domains("domains", domains, listing)
    changes = sweep_settings(recipe, out, changes, methods, listing.domain_names)
    data = load_data(recipe, sources, size=changes.get("size", 0), storage=storage, progress=progress, **pacs)
    special = [words for option, words in SPECIAL.items() if option in pacs.items()]
    return replace(recipe, data=", ".join([recipe.data, *special])), data, changes


def prepare_classifier(
    sources: Sequence[Path],
    out: Path,
    changes: Mapping[str, Any],
    *,
    resume: bool = False,
    storage: Storage = "memory",
    progress: Report = ignore,
) -> tuple[Settings, DomainSet | None]:
    """Return the settings and pictures of a run in ``out`` for `efdm.dg.train`; no pictures if it is finished.

    ``changes`` are settings; the others follow the data set, the backbone, the number of pictures and the device. With
    ``resume``, the settings are those of the run, and ``changes`` may only repeat them or choose another device.
    """
    dataset = dataset_name(sources)

    def load(settings: Settings, **options: Any) -> DomainSet:
        domains = settings.train_domains + settings.test_domains
        return load_dataset(dataset, sources, settings.size, domains=domains, **options)

    check_outside(out, sources)
    finished = check_run_folder(out, resume=resume)
    if resume:
        settings = resumed(Settings, out, changes)
        _check_same_pictures(load(settings, storage="stream"), out)
        return settings, None if finished else load(settings, storage=storage, progress=progress)
    known = {**default_settings(dataset, changes.get("backbone")), **changes}
    known |= device_settings(known)
    check_choice("method", known["method"], METHODS)
    known |= {"data": dataset if dataset == DIGITS else ", ".join(source.resolve().name for source in sources)}
    listing = list_domains(dataset, sources)
    check_classes(listing)
    known |= _choose_domains(listing, changes)
    preliminary = _with_defaults(known, Settings.batch)  # the number of pictures is not known yet
    preliminary.check()
    known["stages"] = choose_stages(known, Settings)
    data = load(preliminary, storage=storage, progress=progress)
    settings = _with_defaults(known, len(data.select(known["train_domains"], "train")))
    settings.check()
    out.mkdir(parents=True, exist_ok=True)
    skipped = without_folders(data.skipped)
    write_json(out / PICTURES_FILE, {"classes": data.classes, "pictures": data.counts("split"), "skipped": skipped})
    return settings, data


def default_settings(dataset: str, backbone: str | None = None) -> dict[str, Any]:
    """Return the default settings: the recipe's for digits, otherwise `DEFAULTS`, with random weights for `BACKBONES`."""
    if dataset == DIGITS:
        recipe = load_recipe("digits_demo").settings
        return {"method": METHOD, **{name: value for name, value in recipe.items() if name != "device"}}
    return {**DEFAULTS, "weights": "random"} if backbone in BACKBONES else dict(DEFAULTS)


def dataset_name(sources: Sequence[Path]) -> str:
    """Return "digits" if that is the only source, otherwise "folder". Write ``./digits`` for a folder named digits."""
    return DIGITS if [str(source) for source in sources] == [DIGITS] else "folder"


def check_outside(out: Path, sources: Sequence[Path]) -> None:
    """Raise SettingError if ``out`` is inside one of the ``sources``, where its files and folders would be read as data."""
    for source in sources if dataset_name(sources) != DIGITS else ():
        if out.resolve().is_relative_to(source.resolve()):
            raise SettingError(f"{out} is inside the data, {source}; choose a folder outside of it", "out")


def _check_same_pictures(data: DomainSet, folder: Path) -> None:
    """Raise RunFolderError if the run in ``folder`` was started with other data. No pictures are read."""
    if not (folder / PICTURES_FILE).exists():  # a run that was started from Python
        return
    before, pictures = (json.loads((folder / name).read_text()) for name in (ENVIRONMENT, PICTURES_FILE))
    skipped = {name for name, _ in pictures["skipped"]}
    readable = torch.tensor([i for i, name in enumerate(data.names) if name not in skipped])
    fingerprint = data.subset(readable).fingerprint()
    check_same_data(before.get("data", fingerprint), fingerprint, folder)  # missing in older runs


def _choose_domains(listing: Listing, changes: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the training and test domains; each defaults to the domains that the other does not name."""
    for name in ("train_domains", "test_domains"):
        check_domains(name, changes.get(name) or (), listing)
    test = changes.get("test_domains")
    train = changes.get("train_domains") or [domain for domain in listing.domain_names if domain not in (test or ())]
    if not train:
        raise SettingError("test_domains leaves no domain to train on; name fewer test domains", "test_domains")
    if test is None:
        test = [domain for domain in listing.domain_names if domain not in train]
    return {"train_domains": tuple(train), "test_domains": tuple(test)}


def _with_defaults(known: Mapping[str, Any], count: int) -> Settings:
    """Return ``known`` with a default batch size and number of iterations for ``count`` training pictures."""
    defaults = {**TASKS["dg"].method_settings(known["method"], Cell(known["train_domains"], ()))}
    defaults["batch"] = min(Settings.batch, max(1, count))
    if defaults["batches"] == "domains":
        defaults["batch"] = defaults["batch"] // 2 * 2
    batch = known.get("batch", defaults["batch"])
    defaults["iterations"] = min(MAX_ITERATIONS, max(MIN_ITERATIONS, EPOCHS * count // max(1, batch)))
    return Settings(**{**defaults, **known})
