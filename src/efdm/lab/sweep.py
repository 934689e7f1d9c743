"""Run a recipe: what is not yet in the records is trained, and its records are added.

A folder of runs holds ``recipe.json`` (the recipe and every training that was asked for), ``environment.json`` (an entry for
each place it was run at), ``records.jsonl``, and ``done`` when all records are there; ``runs/`` has a folder for each
training with its model and its log, which tables do not need. A go that was interrupted is begun again with the same
command; trainings that came to their end are not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch

from efdm.data.datasets import DIGITS, load_dataset
from efdm.data.domains import DomainSet
from efdm.dg.methods import mixes
from efdm.dg.protocols import PROTOCOLS, check_unseen
from efdm.dg.run import sampler
from efdm.dg.settings import Settings, check
from efdm.dg.training import Trained, train_together
from efdm.environment import environment
from efdm.errors import SettingError
from efdm.lab.plan import Planned, expand, hparam_grid, merged, plan_as_json, plan_from_json
from efdm.lab.recipe import Recipe, described, from_description
from efdm.lab.records import FILE, append_records, by_run, complete, read_records
from efdm.lab.scores import VALIDATION
from efdm.lab.selection import SELECTIONS
from efdm.models.backbones import build_backbone
from efdm.nn import find_stage
from efdm.progress import Report, ignore
from efdm.training.files import write_json
from efdm.training.folder import LOCK, check_unlocked, lock_folder
from efdm.training.settings import FILE as SETTINGS

RECIPE = "recipe.json"
DONE = "done"
Job = tuple[Planned, Settings]


class Progress(NamedTuple):
    """Told when a training has come to its end, and once at the beginning."""

    finished: int
    wanted: int  # in this go, those that were there before included
    planned: Planned | None


@dataclass(frozen=True)
class Study:
    """A recipe, every training that was asked for, and the records there are of them."""

    recipe: Recipe
    domains: Sequence[str]  # of the set, in its order
    plan: Sequence[Planned]
    runs: Mapping[str, list[dict[str, Any]]]  # of trainings that came to their end

    @property
    def missing(self) -> list[Planned]:
        return [planned for planned in self.plan if planned.run not in self.runs]


def load_data(
    recipe: Recipe,
    source: str | Path | Sequence[str | Path] | None,
    *,
    size: int = 0,
    reading: Report = ignore,
) -> DomainSet:
    """The pictures that a recipe names, kept at ``size``, by default at the size that the recipe says."""
    size = size or recipe.picture_size or recipe.settings.get("size", Settings.size)
    if source is None and recipe.data != DIGITS:
        raise ValueError(
            f"{recipe.name or 'the recipe'} needs the pictures of {recipe.data}; give their folder or zip as --data"
        )
    return load_dataset(recipe.data, source or (), size, progress=reading)


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
    started: Callable[[Progress], None] = lambda _: None,
    progress: Callable[[Any], None] = lambda _: None,
    reading: Report = ignore,
    train: Callable[..., None] = train_together,
    **changes: Any,
) -> Study:
    """Train what is missing of a recipe and leave its records in the folder ``out``.

    ``seeds``, ``methods`` (rows) and ``domains`` (columns) take a part of the recipe; a later go in the same folder may take
    another, and the tables show all that was ever asked for. ``shard=(i, n)`` takes every n-th of these runs, starting with
    the i-th (counted from 1), for n machines or GPUs with a folder each; `read_study` merges the folders.
    ``changes`` are settings: ``iterations``, ``device``,
    ``weights``... ``lanes`` trainings go side by side on one GPU. ``notes`` go under the tables: what is special about this
    copy of the pictures, say. ``progress`` is told of steps, ``started`` of trainings. ``train`` does what `train_together`
    does, and may do it elsewhere.

    A training whose loss explodes does not stop the others: a FloatingPointError names it when they are finished, tables
    show it as missing, and the next go tries it again.
    """
    check_folder(out)
    recipe = replace(recipe, notes=(*recipe.notes, *notes))
    pictures = data if isinstance(data, DomainSet) else load_data(recipe, data, size=changes.get("size", 0), reading=reading)
    jobs = expand(recipe, pictures.domain_names, seeds=seeds, methods=methods, columns=domains, **changes)
    jobs = _take_shard(jobs, *shard)
    _check_trainings(recipe, [settings for _, settings in jobs], pictures)
    before = read_study(out).runs if (out / RECIPE).exists() else {}
    _check_stages([settings for planned, settings in jobs if planned.run not in before])
    with lock_folder(out):
        study = _begin(recipe, [planned for planned, _ in jobs], out, pictures, jobs[0][1].device if jobs else "cpu")
        places = {planned.run: planned for planned, _ in jobs}
        waiting = {planned.run: settings for planned, settings in jobs if planned.run not in study.runs}
        there = len(places) - len(waiting)
        started(Progress(there, len(places), None))

        def finished(trained: Trained) -> None:
            nonlocal there
            append_records(out / FILE, trained.records)
            there += 1
            started(Progress(there, len(places), places[trained.records[-1]["run"]]))

        exploded: list[str] = []
        for same, of_seed in _by_splits(recipe, waiting.values(), pictures):
            try:
                train(same, of_seed, out / "runs", lanes=lanes, progress=progress, finished=finished)
            except FloatingPointError as error:  # it comes when all others of these are finished
                exploded.append(str(error))
        if exploded:
            raise FloatingPointError(f"{'; '.join(exploded)}. Another go tries again what is missing.")
        study = read_study(out)
        if not study.missing:
            (out / DONE).touch()
        return study


def _take_shard(jobs: list[Job], index: int, count: int) -> list[Job]:
    """Return every ``count``-th job, starting with the ``index``-th (counted from 1)."""
    if not 1 <= index <= count:
        raise SettingError(f"shard must be (i, n) with 1 <= i <= n, got ({index}, {count})", "shard")
    return jobs[index - 1 :: count]


def _by_splits(recipe: Recipe, trainings: Iterable[Settings], data: DomainSet) -> Iterator[tuple[list[Settings], DomainSet]]:
    """All at once, so that no lane waits for another; but where every seed has its own splits, seed by seed."""
    protocol = PROTOCOLS[recipe.protocol]
    for seed, same in groupby(trainings, key=lambda settings: settings.seed if protocol.held_out else 0):
        yield list(same), protocol.pictures(data, seed)


def _check_trainings(recipe: Recipe, trainings: Sequence[Settings], data: DomainSet) -> None:
    """Raise for what would otherwise stop a sweep in its middle, or its tables in the end."""
    if not PROTOCOLS[recipe.protocol].held_out:
        _check_val(recipe, trainings, data)
        if any(SELECTIONS[name].scored == "rest" for name in recipe.selections):
            check_unseen(data)
    for same, pictures in _by_splits(recipe, trainings, data):
        for settings in same:
            check(settings)
        _check_batches(same, pictures)


def _check_stages(trainings: Iterable[Settings]) -> None:
    """Raise for what is no stage of its backbone: methods that need none are trained first, and would not tell."""
    stages: dict[str, dict[str, None]] = {}  # by backbone, each once
    for each in trainings:
        if mixes(each.method):
            stages.setdefault(each.backbone, {}).update(dict.fromkeys(each.stages))
    for backbone, names in stages.items():
        with torch.random.fork_rng(devices=[]):  # nobody's numbers are drawn for it
            model = build_backbone(backbone, 2)
        for name in names:
            find_stage(model, name)


def _check_val(recipe: Recipe, trainings: Sequence[Settings], data: DomainSet) -> None:
    looks = {name: SELECTIONS[name].val for name in recipe.selections}
    looks |= {VALIDATION: "train"} if VALIDATION in recipe.scores else {}
    seen = {side: {d for s in trainings for d in getattr(s, f"{side}_domains")} for side in ("train", "test")}
    for name, side in looks.items():
        for domain in (domain for domain in data.domain_names if domain in seen.get(side, ())):
            if not len(data.splits[domain]["val"]):
                raise ValueError(
                    f"{domain} has no pictures for 'val', which {name!r} looks at; split off a share, or leave {name!r} out "
                    "of the recipe's selections and scores"
                )


def _check_batches(trainings: Sequence[Settings], data: DomainSet) -> None:
    for settings in trainings:
        try:
            sampler(settings, data)
        except ValueError as error:
            fewest = min(len(data.select(each.train_domains, "train")) for each in trainings)
            fits = f"; --set batch={2 ** (fewest.bit_length() - 1)} fits all" if 0 < fewest < settings.batch else ""
            raise ValueError(f"{settings.method}, trained on {', '.join(settings.train_domains)}: {error}{fits}") from error


def check_folder(out: Path) -> None:
    """Raise for a folder in which no run can be, and for one where another process is at work. Nothing is written."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; choose a folder for the run")
    there = {path.name for path in out.iterdir()} - {LOCK} if out.exists() else set()
    if SETTINGS in there:
        raise ValueError(f"{out} is the folder of one training, not of a recipe's; choose another folder")
    if there and not there & {RECIPE, FILE}:
        raise ValueError(f"{out} is not empty and holds no runs; choose another folder")
    check_unlocked(out)


def _begin(recipe: Recipe, plan: list[Planned], out: Path, data: DomainSet, device: str) -> Study:
    """Write what was asked for, together with what was asked for before."""
    if (out / RECIPE).exists():
        before = read_study(out)
        if before.recipe.name != recipe.name:
            raise ValueError(f"{out} holds runs of {before.recipe.name!r}, not of {recipe.name!r}; choose another folder")
        if list(before.domains) != data.domain_names:
            told = f"{', '.join(before.domains)}, not {', '.join(data.domain_names)}"
            raise ValueError(f"{out} was begun with the domains {told}; choose another folder")
        if lost := _unnamed(before.plan, recipe):
            raise ValueError(f"{out} has runs of {', '.join(lost)}, which the recipe no longer names; choose another folder")
        recipe = _with_notes(before.recipe, recipe)
        plan = merged(before.plan, plan)
        _check_same_pictures(out, json.loads((out / RECIPE).read_text()), _counted(data))
    (out / DONE).unlink(missing_ok=True)
    write_json(out / RECIPE, {
        "recipe": described(recipe), "domains": data.domain_names, **_counted(data), "plan": plan_as_json(plan),
    })  # fmt: skip
    _note_environment(
        out / "environment.json", {**environment(device), "pictures": data.counts("split"), "skipped": data.skipped}
    )
    return read_study(out)


def _with_notes(before: Recipe, recipe: Recipe) -> Recipe:
    """The recipe with the notes of both."""
    return replace(recipe, notes=tuple(dict.fromkeys((*before.notes, *recipe.notes))))


def _unnamed(plan: Iterable[Planned], recipe: Recipe) -> list[str]:
    """Rows and settings of the grid that a recipe does not name."""
    grid = hparam_grid(recipe)
    return sorted({f"{p.row} {p.hparams}".strip() for p in plan if p.row not in recipe.rows or p.hparams not in grid})


Counted = dict[str, dict[str, dict[str, int]]]  # by domain, and by class or split


def _counted(data: DomainSet) -> Counted:
    return {"pictures": data.counts("class"), "splits": data.counts("split")}


def _check_same_pictures(folder: Path, told: Mapping[str, Any], counted: Counted) -> None:
    """Raise where a folder was begun with other pictures or splits: one table of two sets would be nobody's.

    Folders of earlier versions do not tell their splits.
    """
    for kind in (kind for kind in counted if kind in told):
        for domain, before in told[kind].items():
            now = counted[kind][domain]
            for name in (name for name in {**before, **now} if before.get(name, 0) != now.get(name, 0)):
                was = f"{before.get(name, 0)} of {name} in {domain}, not {now.get(name, 0)}"
                raise ValueError(
                    f"{folder} was begun with other {kind} ({was}); give those as --data, or choose another folder"
                )


def _note_environment(path: Path, here: dict[str, Any]) -> None:
    """A list, an entry for each go that was somewhere else."""
    goes = json.loads(path.read_text()) if path.exists() else []
    here = json.loads(json.dumps(here))
    if here not in goes:
        write_json(path, [*goes, here])


def read_study(*folders: Path) -> Study:
    """The recipe, the trainings and the records of a folder of runs, or of several of the same recipe together."""
    recipe: Recipe | None = None
    domains: list[str] = []
    counted: Counted = {}
    plan: list[Planned] = []
    records = []
    for folder in folders:
        if not (folder / RECIPE).is_file():
            raise ValueError(f"{folder} holds no runs ({RECIPE} is not there); give the folder of an `efdm dg run`")
        told = json.loads((folder / RECIPE).read_text())
        if recipe is not None and (recipe.name, domains) != (told["recipe"]["name"], told["domains"]):
            raise ValueError(
                f"{folder} holds runs of {told['recipe']['name']!r}, not of {recipe.name!r}, or of other domains"
            )
        domains, counted = told["domains"], {k: told[k] for k in ("pictures", "splits") if k in told} | counted
        _check_same_pictures(folder, told, counted)
        here = from_description(told["recipe"])
        if lost := _unnamed(plan, here):
            raise ValueError(f"{folder} has a recipe that does not name {', '.join(lost)}; give folders of the same recipe")
        recipe = here if recipe is None else _with_notes(recipe, here)
        plan = merged(plan, plan_from_json(told["plan"]))
        records += read_records(folder / FILE) if (folder / FILE).exists() else []
    if recipe is None:
        raise ValueError("no folder was given; give the folder of an `efdm dg run`")
    wanted = {planned.run for planned in plan}
    runs = {name: same for name, same in by_run(records).items() if name in wanted and complete(same)}
    return Study(recipe, domains, plan, runs)
