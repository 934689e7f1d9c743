"""Settings of a run as a file, and what must stay the same when it is resumed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

FILE = "settings.json"  # in the folder of a run
Settings = TypeVar("Settings")


def read_settings(kind: type[Settings], run: Path) -> Settings:
    """The settings that a run began with. What an older run does not tell has its default."""
    path = run / FILE
    if not path.is_file():
        raise ValueError(f"{run} has no run to resume; leave --resume out to begin one")
    try:
        return kind(**json.loads(path.read_text()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold the settings of a run ({error}); begin a run in another folder") from error


def check_same_run(settings: object, run: Path, *, movable: Collection[str], before: object = None) -> None:
    """Raise where ``settings`` are not those that the run began with: a curve of two halves would be nobody's.

    These are read from its folder, unless ``before`` says them.
    """
    before = read_settings(type(settings), run) if before is None else before
    fixed = [field.name for field in dataclasses.fields(settings) if field.name not in movable]  # type: ignore[arg-type]
    differ = [name for name in fixed if getattr(settings, name) != getattr(before, name)]
    if differ:
        told = ", ".join(f"{name} {getattr(before, name)}, not {getattr(settings, name)}" for name in differ)
        raise ValueError(f"the run in {run} began with {told}; resume it with its own settings, or begin another run")


def public(settings: Any, *, files: Collection[str]) -> dict[str, Any]:
    """The settings as they go into a file that may be passed on: files by name, not by where they were."""
    return {**dataclasses.asdict(settings), **{name: Path(getattr(settings, name)).name for name in files}}
