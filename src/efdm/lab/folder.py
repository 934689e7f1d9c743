"""The folder of a sweep, and its content as a `Study`.

The folder holds ``recipe.json`` (the recipe and all planned runs), ``environment.json`` (an entry per machine),
``records.jsonl``, and ``done`` once all records exist. ``runs/`` has a folder per run with its model and log; tables do not
need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from efdm.data.datasets import DESCRIPTION, check_same, describe
from efdm.data.domains import DomainSet
from efdm.data.folders import without_folders
from efdm.environment import environment
from efdm.errors import DamagedFileError, RunFolderError, SettingError
from efdm.lab.plan import Planned, hparam_grid, merged, plan_as_json, plan_from_json
from efdm.lab.recipe import Recipe, as_json
from efdm.lab.records import RECORDS, append_records, by_run, complete, read_records
from efdm.reid import PersonSets
from efdm.training.files import write_json
from efdm.training.folder import DONE, ENVIRONMENT, LOCK, check_unlocked
from efdm.training.settings import FILE as SETTINGS

RECIPE, RUNS = "recipe.json", "runs"


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


def check_sweep_folder(out: Path) -> None:
    """Raise RunFolderError if ``out`` cannot hold a sweep or another process is working there. Writes nothing."""
    check_unlocked(out)
    present = {path.name for path in out.iterdir()} - {LOCK} if out.exists() else set()
    if SETTINGS in present:
        message = f"{out} holds a single run, not the runs of a recipe; choose another folder"
        raise RunFolderError(message, out, "other settings")
    if present and not present & {RECIPE, RECORDS}:
        raise RunFolderError(f"{out} is not empty and holds no runs of a recipe; choose another folder", out, "other data")


def start_study(
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
    entries = json.loads((out / ENVIRONMENT).read_text()) if (out / ENVIRONMENT).exists() else []
    if (machine := json.loads(json.dumps(machine))) not in entries:
        write_json(out / ENVIRONMENT, [*entries, machine])
    for folder in map(Path, reuse):
        other = read_study(folder)
        check_same(other.data, description, folder)
        missing = dict.fromkeys(planned.run for planned in read_study(out).missing)
        append_records(out / RECORDS, (record for run in missing for record in other.runs.get(run, ())))
    return read_study(out)


def _merged(before: Study, more: Study, folder: Path) -> Study:
    """Return a study with the notes and plans of both, without records. Raise unless they are parts of one sweep."""
    recipe, grid = more.recipe, hparam_grid(more.recipe)
    lost = {f"{p.row} {p.hparams}".strip() for p in before.plan if p.row not in recipe.rows or p.hparams not in grid}
    problems = {
        f"recipes {before.recipe.name!r} and {recipe.name!r}": before.recipe.name != recipe.name,
        f"domains {', '.join(before.domains)} and {', '.join(more.domains)}": before.domains != more.domains,
        f"a recipe without {', '.join(sorted(lost))}": bool(lost),
    }
    if problem := next((words for words, differs in problems.items() if differs), ""):
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
