"""Run a recipe: train the runs that have no records yet and append their records.

The folder of a sweep holds ``recipe.json`` (the recipe and all planned runs), ``environment.json`` (an entry per machine),
``records.jsonl``, and ``done`` once all records exist. ``runs/`` has a folder per run with its model and log; tables do not
need it. Calling `run` again continues an interrupted sweep; finished runs are not repeated.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import torch

from efdm.data.bulk import take_shard
from efdm.data.datasets import DESCRIPTION, DIGITS, check_same, describe, load_dataset
from efdm.data.domains import DomainSet
from efdm.data.folders import list_paths, without_folders
from efdm.data.images import file_error
from efdm.dg.protocols import check_unseen
from efdm.dg.settings import Settings
from efdm.dg.training import Trained
from efdm.environment import environment
from efdm.errors import DamagedFileError, DivergedError, RunFolderError, SettingError
from efdm.lab.plan import Planned, expand, hparam_grid, merged, plan_as_json, plan_from_json
from efdm.lab.recipe import Recipe, as_json
from efdm.lab.records import RECORDS, append_records, by_run, complete, read_records
from efdm.lab.selection import SELECTIONS, VALIDATION
from efdm.models.backbones import ORIGINS, build_backbone
from efdm.nn import find_stage
from efdm.progress import Progress, Report, ignore
from efdm.recognition.settings import run_label
from efdm.recognition.workers import train_runs
from efdm.reid import PersonSets
from efdm.training.files import write_json
from efdm.training.folder import DONE, LOCK, check_unlocked, lock_folder
from efdm.training.settings import FILE as SETTINGS

RECIPE, RUNS = "recipe.json", "runs"
Sources = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Study:
    """A recipe, its planned runs, and the records of the finished ones. ``recipe.json`` holds all but the records."""

    recipe: Recipe
    domains: Sequence[str]  # domains of the data set, in its order
    plan: Sequence[Planned]
    runs: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # identity -> records
    data: Mapping[str, Any] = field(default_factory=dict)  # a description of the pictures, see `describe`

    @property
    def missing(self) -> list[Planned]:
        return [planned for planned in self.plan if planned.run not in self.runs]


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
    check_folder(out)
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
        study = _start(recipe, [planned for planned, _ in jobs], out, pictures, jobs[0][1].device if jobs else "cpu", reuse)
        total = len({planned.run for planned, _ in jobs})
        missing = {planned.run: settings for planned, settings in jobs if planned.run not in study.runs}
        _train(recipe, list(missing.values()), pictures, out, total=total, lanes=lanes, keep=keep, progress=progress)
        study = read_study(out)
        if not study.missing:
            (out / DONE).touch()
        return study


def _train(
    recipe: Recipe,
    runs: Sequence[Settings],
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

    def finished(trained: Trained) -> None:
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


def _by_splits(recipe: Recipe, runs: Iterable[Settings], data: Any) -> Iterator[tuple[list[Settings], Any]]:
    """Yield all runs with their pictures together, or seed by seed if every seed has its own splits."""
    split = recipe.protocol_row.split
    for seed, same in groupby(runs, key=lambda settings: settings.seed if split else 0):
        yield list(same), split(data, seed) if split else data


def _check_runs(recipe: Recipe, runs: Sequence[Settings], data: Any) -> None:
    """Raise for problems that would stop a sweep midway or prevent its tables."""
    if recipe.protocol_row.split is None:
        _check_val(recipe, runs, data)
        if any(SELECTIONS[name].val == "test" for name in recipe.selections):
            check_unseen(data)
    for same, pictures in _by_splits(recipe, runs, data):
        for settings in same:
            recipe.task_row.task.check(settings)
            try:
                recipe.task_row.check_data(settings, pictures)
            except ValueError as error:
                names = error.settings if isinstance(error, SettingError) else ("batch",)
                raise SettingError(f"{run_label(settings)}: {error}", names) from error


def _check_val(recipe: Recipe, runs: Sequence[Settings], data: Any) -> None:
    users: dict[str, str] = {name: SELECTIONS[name].val for name in recipe.selections if SELECTIONS[name].val != "unused"}
    users |= {VALIDATION: "train"} if VALIDATION in recipe.scores else {}
    for name, side in users.items():
        used = {domain for settings in runs for domain in getattr(settings, f"{side}_domains")}
        if lacking := sorted(domain for domain in used if not len(data.splits[domain]["val"])):
            raise ValueError(
                f"{', '.join(lacking)} has no pictures in the split 'val', which {name!r} needs; hold out a share, or "
                f"remove {name!r} from the recipe's selections and scores"
            )


def _check_stages(runs: Iterable[Settings]) -> None:
    """Raise for a name that is not a stage of its backbone, before methods without stages are trained."""
    mixing = [settings for settings in runs if settings.methods[settings.method].inserts_layers()]
    for backbone in dict.fromkeys(settings.backbone for settings in mixing):
        with torch.random.fork_rng(devices=[]):
            model = build_backbone(backbone, 2)
        for stage in dict.fromkeys(stage for s in mixing if s.backbone == backbone for stage in s.stages):
            find_stage(model, stage)


def check_folder(out: Path) -> None:
    """Raise RunFolderError if ``out`` cannot hold a sweep or another process is working there. Writes nothing."""
    check_unlocked(out)
    present = {path.name for path in out.iterdir()} - {LOCK} if out.exists() else set()
    if SETTINGS in present:
        message = f"{out} holds a single run, not the runs of a recipe; choose another folder"
        raise RunFolderError(message, out, "other settings")
    if present and not present & {RECIPE, RECORDS}:
        raise RunFolderError(f"{out} is not empty and holds no runs of a recipe; choose another folder", out, "other data")


def _start(
    recipe: Recipe, plan: list[Planned], out: Path, data: DomainSet | PersonSets, device: str, reuse: Sequence[str | Path]
) -> Study:
    """Write the recipe and the plan, merged with those of earlier calls, and copy the records of runs from ``reuse``."""
    description = describe(data)
    study = Study(recipe, data.domain_names, plan, data=description)
    if (out / RECIPE).exists():
        study = _merged(_read(out), study, out)
    (out / DONE).unlink(missing_ok=True)
    start = {"recipe": as_json(study.recipe), "domains": study.domains}
    write_json(out / RECIPE, {**start, **study.data, "plan": plan_as_json(study.plan)})
    counts = description.get("splits", description["pictures"])
    machine = {**environment(device), "pictures": counts, "skipped": without_folders(data.skipped)}
    path = out / "environment.json"
    entries = json.loads(path.read_text()) if path.exists() else []
    if (machine := json.loads(json.dumps(machine))) not in entries:
        write_json(path, [*entries, machine])
    for folder in map(Path, reuse):
        check_same(_read(folder).data, description, folder)
        known = read_study(folder).runs
        missing = dict.fromkeys(planned.run for planned in read_study(out).missing)
        append_records(out / RECORDS, (record for run in missing for record in known.get(run, ())))
    return read_study(out)


def _merged(before: Study, more: Study, folder: Path) -> Study:
    """Return a study with the notes and plans of both, without records. Raise unless they are parts of one sweep."""
    recipe, grid = more.recipe, hparam_grid(more.recipe)
    lost = {f"{p.row} {p.hparams}".strip() for p in before.plan if p.row not in recipe.rows or p.hparams not in grid}
    problem = ""
    if before.recipe.name != recipe.name:
        problem = f"recipes {before.recipe.name!r} and {recipe.name!r}"
    elif before.domains != more.domains:
        problem = f"domains {', '.join(before.domains)} and {', '.join(more.domains)}"
    elif lost:
        problem = f"a recipe without {', '.join(sorted(lost))}"
    if problem:
        message = f"{folder} belongs to another sweep: {problem}; choose another folder"
        raise RunFolderError(message, folder, "other settings")
    check_same(before.data, more.data, folder)
    notes = tuple(dict.fromkeys((*before.recipe.notes, *recipe.notes)))
    data = {**more.data, **before.data}
    return Study(replace(recipe, notes=notes), more.domains, merged(before.plan, more.plan, recipe), data=data)


def _read(folder: Path) -> Study:
    """Return the study of a folder without its records."""
    path = folder / RECIPE
    if not folder.exists():
        raise SettingError(f"{folder} does not exist; check the name")
    if (folder / SETTINGS).exists():
        raise SettingError(f"{folder} holds a single run; expected a folder of `run`, with all runs of a recipe")
    if not path.is_file():
        inside = sorted(file.parent.name for file in folder.glob(f"*/{RECIPE}"))
        instead = f"; choose one of its folders {', '.join(inside)}" if inside else ""
        raise SettingError(f"{folder} holds no runs of a recipe ({RECIPE} not found){instead}")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        data = {entry: content[entry] for entry in DESCRIPTION if entry in content}
        return Study(Recipe(**content["recipe"]), list(content["domains"]), plan_from_json(content["plan"]), data=data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"is not a recipe ({type(error).__name__}: {error})"
        raise DamagedFileError(path, reason, "restore it from a copy, or delete it and run the recipe again") from error


def read_study(folder: str | Path, *others: str | Path) -> Study:
    """Return the recipe, plan and records of a sweep's folder, or of several folders of the same recipe together."""
    folders = [Path(each) for each in (folder, *others)]
    study = _read(folders[0])
    for other in folders[1:]:
        study = _merged(study, _read(other), other)
    records = read_records(*(path for each in folders if (path := each / RECORDS).exists()))
    planned_runs = {planned.run for planned in study.plan}
    runs = {run: own for run, own in by_run(records).items() if run in planned_runs and complete(own)}
    return replace(study, runs=runs)
