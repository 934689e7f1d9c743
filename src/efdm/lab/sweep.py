"""Run a recipe: train the runs that have no records yet and append their records.

The folder of a sweep holds ``recipe.json`` (the recipe and all planned runs), ``environment.json`` (an entry per machine),
``records.jsonl``, and ``done`` once all records exist. ``runs/`` has a folder per run with its model and log; tables do not
need it. Calling `run` again continues an interrupted sweep; finished runs are not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from efdm.data.datasets import DIGITS, load_dataset
from efdm.data.domains import DomainSet
from efdm.data.fingerprint import check_same, describe
from efdm.dg.methods import mixes
from efdm.dg.protocols import PROTOCOLS, check_unseen
from efdm.dg.settings import Settings, check
from efdm.dg.training import Trained, sampler
from efdm.dg.workers import train_runs
from efdm.environment import environment
from efdm.errors import DamagedFileError, DivergedError, RunFolderError, SettingError
from efdm.lab.plan import Planned, expand, hparam_grid, merged, plan_as_json, plan_from_json
from efdm.lab.recipe import Recipe, as_json
from efdm.lab.records import FILE, append_records, by_run, complete, read_records
from efdm.lab.scores import VALIDATION
from efdm.lab.selection import SELECTIONS
from efdm.models.backbones import build_backbone
from efdm.nn import find_stage
from efdm.progress import Progress, Report, ignore
from efdm.training.files import write_json
from efdm.training.folder import DONE, LOCK, check_unlocked, lock_folder
from efdm.training.settings import FILE as SETTINGS

RECIPE = "recipe.json"
Job = tuple[Planned, Settings]


@dataclass(frozen=True)
class Study:
    """A recipe, its planned runs, and the records of the finished ones."""

    recipe: Recipe
    domains: Sequence[str]  # of the data set, in its order
    plan: Sequence[Planned]
    runs: Mapping[str, list[dict[str, Any]]]  # identity -> records

    @property
    def missing(self) -> list[Planned]:
        return [planned for planned in self.plan if planned.run not in self.runs]


def load_data(
    recipe: Recipe, source: str | Path | Sequence[str | Path] | None, *, size: int = 0, progress: Report = ignore
) -> DomainSet:
    """Read the pictures of a recipe. ``size`` overrides the recipe's size."""
    size = size or recipe.picture_size or recipe.settings.get("size", Settings.size)
    if source is None and recipe.data != DIGITS:
        raise SettingError(f"{recipe.name or 'the recipe'} needs the pictures of {recipe.data}: a folder or a zip", "data")
    return load_dataset(recipe.data, source or (), size, progress=progress)


def run(
    recipe: Recipe,
    data: DomainSet | str | Path | Sequence[str | Path] | None,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    shard: tuple[int, int] = (1, 1),
    lanes: int = 1,
    notes: Sequence[str] = (),
    progress: Report = ignore,
    train: Callable[..., None] = train_runs,
    **changes: Any,
) -> Study:
    """Train the missing runs of a recipe and append their records in the folder ``out``.

    Args:
        seeds, methods, domains: restrict the recipe to these seeds, rows and columns. A later call for the same folder may
            select others; tables show everything that was ever planned there.
        shard: ``(i, n)`` takes every n-th of the selected runs, starting with the i-th (counted from 1), for n machines or
            GPUs with a folder each. `read_study` merges the folders.
        lanes: the number of runs at a time: on one GPU, or in processes on a CPU.
        notes: sentences to print under the tables.
        progress: receives the steps of each run, and the number of finished runs under the label "runs".
        train: replaces `train_runs`, which trains on this machine.
        changes: settings that override the recipe's, such as ``iterations``, ``device`` or ``weights``.

    A run that diverges does not stop the others: a DivergedError names it at the end, tables show it as missing, and
    the next call trains it again.
    """
    check_folder(out)
    recipe = replace(recipe, notes=(*recipe.notes, *notes))
    size = changes.get("size", 0)
    pictures = data if isinstance(data, DomainSet) else load_data(recipe, data, size=size, progress=progress)
    jobs = expand(recipe, pictures.domain_names, seeds=seeds, methods=methods, columns=domains, **changes)
    jobs = _take_shard(jobs, *shard)
    device = jobs[0][1].device if jobs else "cpu"
    _check_runs(recipe, [settings for _, settings in jobs], pictures)
    finished_before = read_study(out).runs if (out / RECIPE).exists() else {}
    _check_stages([settings for planned, settings in jobs if planned.run not in finished_before])
    with lock_folder(out):
        study = _start(recipe, [planned for planned, _ in jobs], out, pictures, device)
        total = len({planned.run for planned, _ in jobs})
        waiting = {planned.run: settings for planned, settings in jobs if planned.run not in study.runs}
        done = total - len(waiting)
        progress(Progress("runs", done, total))

        def finished(trained: Trained) -> None:
            nonlocal done
            append_records(out / FILE, trained.records)
            done += 1
            progress(Progress("runs", done, total))

        diverged: list[DivergedError] = []
        for same, of_seed in _by_splits(recipe, waiting.values(), pictures):
            try:
                train(same, of_seed, out / "runs", lanes=lanes, progress=progress, finished=finished)
            except DivergedError as error:  # raised when the other runs have finished
                diverged.append(error)
        if diverged:
            message = f"{'; '.join(map(str, diverged))}. Run the recipe again to repeat the missing runs."
            raise DivergedError(message, diverged[0].iteration, diverged[0].settings)
        study = read_study(out)
        if not study.missing:
            (out / DONE).touch()
        return study


def _take_shard(jobs: list[Job], index: int, count: int) -> list[Job]:
    if not 1 <= index <= count:
        raise SettingError(f"shard must be (i, n) with 1 <= i <= n, got ({index}, {count})", "shard")
    return jobs[index - 1 :: count]


def _by_splits(recipe: Recipe, runs: Iterable[Settings], data: DomainSet) -> Iterator[tuple[list[Settings], DomainSet]]:
    """Yield all runs with their pictures at once, or seed by seed if every seed has its own splits."""
    protocol = PROTOCOLS[recipe.protocol]
    for seed, same in groupby(runs, key=lambda settings: settings.seed if protocol.held_out else 0):
        yield list(same), protocol.pictures(data, seed)


# --- checks before the first run -------------------------------------------------------------------------------------


def _check_runs(recipe: Recipe, runs: Sequence[Settings], data: DomainSet) -> None:
    """Raise for problems that would stop a sweep midway or prevent its tables."""
    if not PROTOCOLS[recipe.protocol].held_out:
        _check_val(recipe, runs, data)
        if any(SELECTIONS[name].scored == "rest" for name in recipe.selections):
            check_unseen(data)
    for same, pictures in _by_splits(recipe, runs, data):
        for settings in same:
            check(settings)
        _check_batches(same, pictures)


def _check_stages(runs: Iterable[Settings]) -> None:
    """Raise for a name that is not a stage of its backbone: methods without stages train first and would not notice."""
    stages: dict[str, dict[str, None]] = {}  # by backbone, without duplicates
    for settings in runs:
        if mixes(settings.method):
            stages.setdefault(settings.backbone, {}).update(dict.fromkeys(settings.stages))
    for backbone, names in stages.items():
        with torch.random.fork_rng(devices=[]):
            model = build_backbone(backbone, 2)
        for name in names:
            find_stage(model, name)


def _check_val(recipe: Recipe, runs: Sequence[Settings], data: DomainSet) -> None:
    users = {name: SELECTIONS[name].val for name in recipe.selections}
    users |= {VALIDATION: "train"} if VALIDATION in recipe.scores else {}
    present = {side: {d for s in runs for d in getattr(s, f"{side}_domains")} for side in ("train", "test")}
    for name, side in users.items():
        for domain in data.domain_names:
            if domain in present.get(side, ()) and not len(data.splits[domain]["val"]):
                raise ValueError(
                    f"{domain} has no pictures in the split 'val', which {name!r} needs; split off a share, or remove "
                    f"{name!r} from the recipe's selections and scores"
                )


def _check_batches(runs: Sequence[Settings], data: DomainSet) -> None:
    for settings in runs:
        try:
            sampler(settings, data)
        except ValueError as error:
            fewest = min(len(data.select(each.train_domains, "train")) for each in runs)
            fits = f"; batch={2 ** (fewest.bit_length() - 1)} fits all runs" if 0 < fewest < settings.batch else ""
            where = f"{settings.method}, trained on {', '.join(settings.train_domains)}"
            raise SettingError(f"{where}: {error}{fits}", "batch") from error


def check_folder(out: Path) -> None:
    """Raise RunFolderError if ``out`` cannot hold a sweep or another process is working there. Writes nothing."""
    check_unlocked(out)
    present = {path.name for path in out.iterdir()} - {LOCK} if out.exists() else set()
    if SETTINGS in present:
        raise RunFolderError(f"{out} holds a single run, not a recipe's; choose another folder", out, "other settings")
    if present and not present & {RECIPE, FILE}:
        raise RunFolderError(f"{out} is not empty and holds no sweep; choose another folder", out, "other data")


# --- files -----------------------------------------------------------------------------------------------------------


def _start(recipe: Recipe, plan: list[Planned], out: Path, data: DomainSet, device: str) -> Study:
    """Write the recipe and the plan, merged with those of earlier calls."""
    if (out / RECIPE).exists():
        before = read_study(out)
        if before.recipe.name != recipe.name:
            message = f"{out} holds runs of {before.recipe.name!r}, not of {recipe.name!r}; choose another folder"
            raise RunFolderError(message, out, "other settings")
        if list(before.domains) != data.domain_names:
            domains = f"{', '.join(before.domains)}, not {', '.join(data.domain_names)}"
            raise RunFolderError(f"{out} was started with the domains {domains}; choose another folder", out, "other data")
        if lost := _unnamed(before.plan, recipe):
            message = f"{out} has runs of {', '.join(lost)}, which the recipe no longer contains; choose another folder"
            raise RunFolderError(message, out, "other settings")
        recipe = _with_notes(before.recipe, recipe)
        plan = merged(before.plan, plan)
        check_same(_read(out), data, out)
    (out / DONE).unlink(missing_ok=True)
    content = {"recipe": as_json(recipe), "domains": data.domain_names, **describe(data), "plan": plan_as_json(plan)}
    write_json(out / RECIPE, content)
    _add_environment(
        out / "environment.json", {**environment(device), "pictures": data.counts("split"), "skipped": data.skipped}
    )
    return read_study(out)


def _with_notes(before: Recipe, recipe: Recipe) -> Recipe:
    return replace(recipe, notes=tuple(dict.fromkeys((*before.notes, *recipe.notes))))


def _unnamed(plan: Iterable[Planned], recipe: Recipe) -> list[str]:
    """Return the planned rows and combinations that a recipe does not contain."""
    grid = hparam_grid(recipe)
    return sorted({f"{p.row} {p.hparams}".strip() for p in plan if p.row not in recipe.rows or p.hparams not in grid})


def _add_environment(path: Path, here: dict[str, Any]) -> None:
    entries = json.loads(path.read_text()) if path.exists() else []
    here = json.loads(json.dumps(here))
    if here not in entries:
        write_json(path, [*entries, here])


def _read(folder: Path) -> dict[str, Any]:
    """Return the contents of ``recipe.json`` with the recipe and the plan as objects."""
    path = folder / RECIPE
    if not path.is_file():
        raise SettingError(f"{folder} holds no sweep ({RECIPE} not found)")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        made = {"recipe": Recipe(**content["recipe"]), "plan": plan_from_json(content["plan"])}
        return {**content, **made, "domains": list(content["domains"])}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"is not a recipe ({type(error).__name__}: {error})"
        raise DamagedFileError(path, reason, "restore it from a copy, or delete it and run the recipe again") from error


def read_study(*folders: Path) -> Study:
    """Return the recipe, plan and records of a sweep's folder, or of several folders of the same recipe together."""
    if not folders:
        raise ValueError("read_study needs at least one folder")
    first = _read(folders[0])
    recipe, plan, described = first["recipe"], first["plan"], first
    for folder in folders[1:]:
        content = _read(folder)
        if (recipe.name, first["domains"]) != (content["recipe"].name, content["domains"]):
            message = f"{folder} holds runs of {content['recipe'].name!r}, not of {recipe.name!r}, or of other domains"
            raise RunFolderError(message, folder, "other settings")
        check_same(described, content, folder)
        if lost := _unnamed(plan, content["recipe"]):
            message = f"{folder} has a recipe without {', '.join(lost)}; give folders of the same recipe"
            raise RunFolderError(message, folder, "other settings")
        recipe, plan = _with_notes(recipe, content["recipe"]), merged(plan, content["plan"])
        described = {**content, **described}
    records = read_records(*(folder / FILE for folder in folders if (folder / FILE).exists()))
    wanted = {planned.run for planned in plan}
    runs = {name: same for name, same in by_run(records).items() if name in wanted and complete(same)}
    return Study(recipe, first["domains"], plan, runs)
