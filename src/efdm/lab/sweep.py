"""Run a recipe: train the runs that have no records yet and append their records.

Calling `run` again continues an interrupted sweep; finished runs are not repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch

from efdm.data.bulk import take_shard
from efdm.data.datasets import DIGITS, load_dataset
from efdm.data.domains import DomainSet
from efdm.data.folders import list_paths
from efdm.data.images import file_error
from efdm.dg.settings import Settings
from efdm.errors import DivergedError, SettingError
from efdm.lab.folder import RECIPE, RUNS, Study, check_sweep_folder, read_study, start_study
from efdm.lab.plan import expand
from efdm.lab.recipe import Recipe
from efdm.lab.records import RECORDS, append_records
from efdm.lab.selection import SELECTIONS, VALIDATION
from efdm.models.backbones import ORIGINS, build_backbone
from efdm.nn import find_stage
from efdm.progress import Progress, Report, ignore
from efdm.recognition.settings import RecognitionSettings, run_label
from efdm.recognition.workers import train_runs
from efdm.reid import PersonSets
from efdm.training.folder import DONE, lock_folder

Sources = str | Path | Sequence[str | Path]
Runs = Sequence[RecognitionSettings]


def check_sources(recipe: Recipe, sources: Sequence[Path]) -> None:
    """Raise if a recipe that needs pictures has no sources, or if one that generates its pictures has some."""
    if (recipe.data == DIGITS) == bool(sources):
        needed = f"needs the pictures of {recipe.data}; pass a folder or zip"
        problem = "generates its digits and takes no data" if sources else needed
        raise SettingError(f"{recipe.name or 'the recipe'} {problem}", "data")
    for source in sources:
        if not source.exists():
            raise file_error(FileNotFoundError(), source)


def load_data(
    recipe: Recipe, source: Sources | None, *, size: int = 0, progress: Report = ignore, **options: Any
) -> DomainSet:
    """Read the pictures of a recipe. ``size`` overrides the recipe's size, and ``options`` are those of `load_dataset`."""
    sources = list_paths(source or [])
    check_sources(recipe, sources)
    size = size or recipe.picture_size or recipe.settings.get("size", Settings.size)
    return load_dataset(recipe.data, sources, size, progress=progress, **options)


def run(
    recipe: Recipe,
    data: DomainSet | PersonSets | Sources | None,
    out: str | Path,
    *,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    shard: tuple[int, int] = (1, 1),
    lanes: int = 1,
    keep: Literal["models", "records"] = "models",
    notes: Sequence[str] = (),
    reuse: Sequence[str | Path] = (),
    progress: Report = ignore,
    **changes: Any,
) -> Study:
    """Train the missing runs of a recipe and append their records to those in the folder ``out``.

    Args:
        data: the pictures; for domain generalization also the folders or zips to read.
        seeds, methods, domains: restrict the recipe to these seeds, rows and columns. A later call for the same folder may
            select others; tables show all of them.
        shard: ``(i, n)`` takes every n-th of the selected runs, starting with the i-th (counted from 1), for n machines or
            GPUs with a folder each. `read_study` merges the folders.
        lanes: the number of runs at a time: on one GPU, or in processes on a CPU.
        keep: "records" deletes the folder of every finished run, with its model and log.
        notes: sentences to print under the tables.
        reuse: folders of other sweeps on the same pictures. Their records of runs with the same settings are copied.
        progress: receives the steps of each run, and the number of finished runs under the label "runs".
        changes: settings that override the recipe's, such as ``iterations``, ``device`` or ``weights``.

    A run that diverges does not stop the others: a DivergedError names it at the end, tables show it as missing, and
    the next call trains it again.
    """
    out = Path(out)
    check_sweep_folder(out)
    size = changes.get("size", 0)
    pictures = data if isinstance(data, DomainSet | PersonSets) else load_data(recipe, data, size=size, progress=progress)
    planned_runs = expand(recipe, pictures.domain_names, seeds=seeds, methods=methods, columns=domains, **changes)
    jobs = take_shard(planned_runs, shard)
    origins = dict.fromkeys(ORIGINS[name] for planned, _ in jobs if (name := planned.settings["weights"]) in ORIGINS)
    recipe = replace(recipe, notes=(*origins, *recipe.notes, *notes))
    _check_runs(recipe, [settings for _, settings in jobs], pictures)
    finished_before = read_study(out).runs if (out / RECIPE).exists() else {}
    _check_stages((settings for planned, settings in jobs if planned.run not in finished_before))
    with lock_folder(out):
        device = jobs[0][1].device if jobs else "cpu"
        study = start_study(recipe, [planned for planned, _ in jobs], out, pictures, device, reuse)
        runs = {planned.run: settings for planned, settings in jobs}
        missing = [settings for run, settings in runs.items() if run not in study.runs]
        _train(recipe, missing, pictures, out, total=len(runs), lanes=lanes, keep=keep, progress=progress)
        study = read_study(out)
        if not study.missing:
            (out / DONE).touch()
        return study


def _train(
    recipe: Recipe,
    runs: Runs,
    data: Any,
    out: Path,
    *,
    total: int,
    lanes: int,
    keep: Literal["models", "records"],
    progress: Report,
) -> None:
    """Train runs and append their records. Raise a DivergedError for those that diverged when the others have finished.

    ``total`` counts all runs of the sweep, for ``progress``.
    """
    done = total - len(runs)
    progress(Progress("runs", done, total))

    def finished(trained: Any) -> None:
        nonlocal done
        append_records(out / RECORDS, trained.records)
        if keep == "records":
            shutil.rmtree(out / RUNS / trained.records[0]["run"], ignore_errors=True)
        done += 1
        progress(Progress("runs", done, total))

    diverged: list[DivergedError] = []
    for same, pictures in _by_splits(recipe, runs, data):
        try:
            train_runs(recipe.task_row.task, same, pictures, out / RUNS, lanes=lanes, progress=progress, finished=finished)
        except DivergedError as error:
            diverged.append(error)
    if diverged:
        message = f"{'; '.join(map(str, diverged))}. Run the recipe again to repeat the missing runs."
        raise DivergedError(message, diverged[0].iteration, diverged[0].settings)


def _by_splits(recipe: Recipe, runs: Runs, data: Any) -> Iterator[tuple[Runs, Any]]:
    """Yield all runs with their pictures together, or seed by seed if every seed has its own splits."""
    split = recipe.protocol_row.split
    for seed, same in groupby(runs, key=lambda settings: settings.seed if split else 0):
        yield list(same), split(data, seed) if split else data


def _check_runs(recipe: Recipe, runs: Runs, data: Any) -> None:
    """Raise for problems that would stop a sweep midway or prevent its tables."""
    if recipe.protocol_row.split is None:
        _check_val(recipe, runs, data)
    for same, pictures in _by_splits(recipe, runs, data):
        for settings in same:
            settings.check()
            try:
                recipe.task_row.task.check_data(settings, pictures)
            except ValueError as error:
                names = error.settings if isinstance(error, SettingError) else ("batch",)
                raise SettingError(f"{run_label(settings)}: {error}", names) from error


def _check_val(recipe: Recipe, runs: Runs, data: Any) -> None:
    users: dict[str, str] = {name: SELECTIONS[name].uses for name in recipe.selections}
    users |= {VALIDATION: "train"} if VALIDATION in recipe.scores else {}
    for name, side in users.items():
        if side not in ("train", "test"):
            continue
        used = {domain for settings in runs for domain in getattr(settings, f"{side}_domains")}
        if lacking := sorted(domain for domain in used if not len(data.splits[domain]["val"])):
            raise ValueError(
                f"{', '.join(lacking)} has no pictures in the split 'val', which {name!r} needs; hold out a share, or "
                f"remove {name!r} from the recipe's selections and scores"
            )


def _check_stages(runs: Iterable[RecognitionSettings]) -> None:
    """Raise for a name that is not a stage of its backbone, before methods without stages are trained."""
    mixing = [settings for settings in runs if settings.methods[settings.method].inserts_layers()]
    for backbone in dict.fromkeys(settings.backbone for settings in mixing):
        with torch.random.fork_rng(devices=[]):
            model = build_backbone(backbone, 2)
        for stage in dict.fromkeys(stage for s in mixing if s.backbone == backbone for stage in s.stages):
            find_stage(model, stage)
