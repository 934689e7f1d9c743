"""Prepare a sweep or a single run of re-identification, and write the queries and galleries that it draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from efdm.errors import SettingError
from efdm.lab.preparation import METHOD, check_run_folder, choose_stages, device_settings, resumed, sweep_settings
from efdm.lab.recipe import Recipe
from efdm.ops.choices import check_choice
from efdm.progress import Report, ignore
from efdm.reid import PersonSets, Settings, read_sets
from efdm.reid.protocols import default_protocol, make_trials, write_trials
from efdm.reid.settings import METHODS

EPOCHS, MIN_ITERATIONS = 60, 300  # paper: 60 epochs
TRIALS = "trials-{}.json"  # file in the folder of a run or sweep with the queries and the gallery of a test set


def prepare_reid_sweep(
    recipe: Recipe,
    paths: Mapping[str, Path],
    out: Path,
    *,
    methods: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    changes: Mapping[str, Any],
    progress: Report = ignore,
    **reading: Any,
) -> tuple[Recipe, PersonSets, dict[str, Any]]:
    """Return the recipe, its sets and the settings that override the recipe's: the arguments of `efdm.lab.run`.

    ``reading`` are arguments of `read_sets`.
    """
    names = recipe.data.split(", ")
    if set(paths) != set(names):
        problem = f"needs data sets named {', '.join(names)}; got {', '.join(paths) or 'none'}"
        raise SettingError(f"{recipe.name} {problem}", "data")
    for name in domains or ():
        check_choice("domains", name, names)
    changes = sweep_settings(recipe, out, changes, methods, names)
    size = {"size": Settings.size, **recipe.settings, **changes}["size"]
    return recipe, read_sets({name: paths[name] for name in names}, size=size, progress=progress, **reading), changes


def save_trials(data: PersonSets, protocols: Mapping[str, str], folder: Path, seed: int = 0) -> list[Path]:
    """Write the queries and gallery of each test set whose protocol is not "official", and return the files."""
    drawn = {folder / TRIALS.format(name): (name, row) for name, row in protocols.items() if row != "official"}
    for path, (name, row) in drawn.items():
        write_trials(path, make_trials(data[name], row, seed), data[name], protocol=row, seed=seed)
    return list(drawn)


def prepare_embedder(
    train: Mapping[str, Path],
    test: Mapping[str, Path],
    out: Path,
    changes: Mapping[str, Any],
    *,
    split: int = 0,
    resume: bool = False,
    progress: Report = ignore,
    **reading: Any,
) -> tuple[Settings, PersonSets | None]:
    """Return the settings and sets of a run in ``out`` for `efdm.reid.train`; no sets if it is finished.

    ``changes`` are settings; the others follow the sets, the backbone, the number of pictures and the device. With
    ``resume``, the settings are those of the run, and ``changes`` may only repeat them or choose another device.
    ``reading`` are arguments of `read_sets`.
    """
    reading |= {"split": split, "progress": progress}
    for (name, path), (tested, other) in product(train.items(), test.items()):
        same = path.resolve() == other.resolve()
        if name == tested and not same:
            raise SettingError(f"{name!r} names two data sets, {path} and {other}; rename one", ("data", "test"))
        if name != tested and same:
            raise SettingError(f"{name!r} and {tested!r} are the same data set, {path}; test on another", ("data", "test"))
    paths = {**train, **test}
    finished = check_run_folder(out, resume=resume)
    if resume:
        settings = resumed(Settings, out, changes)
        return settings, None if finished else read_sets(paths, size=settings.size, **reading)
    method = changes.get("method", METHOD)
    check_choice("method", method, METHODS)
    known: dict[str, Any] = {"batches": METHODS[method].batches, "method": method, **changes}
    name = ", ".join([*paths, *([f"split {split}"] if split else [])])
    known |= {"data": name, "train_domains": tuple(train), "test_domains": tuple(test), **device_settings(known)}
    if known.get("weights", Settings.weights) == "random":
        known.setdefault("classifier_lr", 1.0)  # a larger rate suits a new classifier on pretrained layers
    Settings(**known).check()
    known["stages"] = choose_stages(known, Settings, most=2)  # as in the paper
    data = read_sets(paths, size=known.get("size", Settings.size), **reading)
    known.setdefault("protocols", {name: default_protocol(data[name]) for name in test})
    count = sum(len(data[name].select("train")) for name in train)
    epochs = EPOCHS * count // known.get("batch", Settings.batch)
    settings = Settings(**{"iterations": max(MIN_ITERATIONS, epochs), **known})
    settings.check()
    return settings, data
