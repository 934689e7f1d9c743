"""Options shared by the commands of ``efdm dg`` and ``efdm reid``, and parsers of their values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from efdm.apps.cli.options import Words, option
from efdm.data.domains import Storage
from efdm.errors import SettingError
from efdm.lab.tasks import TASKS
from efdm.text import suggest

OPTION = "options."  # prefix of a method's options in --set

Set = Annotated[Words, option("Any other setting as NAME=VALUE; repeat for several.", "--set")]
Layouts = Annotated[Words, option("NAME=LAYOUT of a set that is not recognized; see `efdm reid list`. Repeat for several.")]
StorageOption = Annotated[Storage, option("memory, or stream to read pictures when they are needed.")]
MODEL_HELP = "The model.safetensors of a run, or the folder of the run."
DATA_HELP = "Pictures: a folder or zip of domain/class/picture; repeat for several."
SETS_HELP = "A data set as NAME=PATH of a folder or zip; repeat for several."


def parse_names(setting: str, values: Sequence[str] | None, known: Sequence[str] = ()) -> list[str] | None:
    """Split comma-separated names, except those in ``known``, which may contain commas. Return None for no values."""
    parts = [[value] if value in known else value.split(",") for value in values or ()]
    names = [name.strip() for part in parts for name in part if name.strip()]
    if values and not names:
        raise SettingError(f"{setting} must not be empty", setting)
    return names or None


def parse_sets(words: Sequence[str] | None, setting: str = "data") -> dict[str, Path]:
    """Parse NAME=PATH pairs. A path alone is named by its file or folder, without extension."""
    sets: dict[str, Path] = {}
    for word in words or ():
        name, equals, path = word.partition("=")
        if not equals or Path(word).exists():
            name, path = Path(word).resolve().stem, word
        if not name or not path:
            raise SettingError(f"{setting} must be NAME=PATH or a path, got {word!r}", setting)
        if name in sets:
            raise SettingError(f"two data sets are named {name!r}; name them with NAME=PATH", setting)
        sets[name] = Path(path)
    return sets


def parse_seeds(text: str | None) -> list[int] | None:
    """Parse "5" as the seeds 0 to 4, "0,3" as these two and "3," as this one. Return None for None."""
    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    if not numbers or not all(part.isdecimal() for part in numbers) or (numbers == ["0"] and "," not in text):
        raise SettingError(f"seeds must be a count (5 means 0 to 4) or comma-separated seeds (0,3), got {text!r}", "seeds")
    return list(dict.fromkeys(map(int, numbers))) if "," in text else list(range(int(text)))


def collect_settings(params: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the settings among the parameters of a command, and those of its ``--set``.

    Raise SettingError if a setting is given twice.
    """
    changes = parse_settings(params["set_"] or (), task)
    for name, hint in _setting_types(task).items():
        value = params.get(name)
        if isinstance(value, list | tuple):
            value = parse_names(name, value) if name != "data" else None  # --data takes paths, not the name of the data
        if value is None:
            continue
        if name in changes:
            raise SettingError(f"{name} is given twice, by --set and by its own option; remove one of them", name)
        changes[name] = _parse_value(name, value, hint) if isinstance(value, str) else value
    return changes


def _setting_types(task: str) -> dict[str, Any]:
    settings = TASKS[task].settings
    types = get_type_hints(settings)
    return {field.name: types[field.name] for field in fields(settings)}


def parse_settings(words: Sequence[str], task: str = "dg") -> dict[str, Any]:
    """Parse NAME=VALUE pairs. Tuples are comma-separated; a method's options are ``options.NAME=VALUE`` or a JSON object."""
    hints, changes = _setting_types(task), dict[str, Any]()
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise SettingError(f"expected NAME=VALUE such as lr=0.01, got {word!r}", "set")
        if name.startswith(OPTION):
            changes["options"] = {**changes.get("options", {}), name.removeprefix(OPTION): _json_or_text(text)}
            continue
        if name not in hints and any(name in method.options for method in TASKS[task].methods.values()):
            raise SettingError(f"{name} is an option of methods; write {OPTION}{word}", "set")
        if name not in hints:
            close = suggest(name, hints)
            hint = f"; did you mean {close}?" if close else f"; the settings are {', '.join(hints)}"
            raise SettingError(f"no setting {name!r}{hint}", "set")
        changes[name] = _parse_value(name, text, hints[name])
    return changes


def _parse_value(name: str, text: str, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if Ellipsis not in get_args(hint) and len(parts) != len(get_args(hint)):
            raise SettingError(f"{name} must be {len(get_args(hint))} comma-separated values, got {text!r}", name)
        return tuple(map(_json_or_text, parts)) if int in get_args(hint) else tuple(parts)
    return text if hint is str else _json_or_text(text)


def _json_or_text(text: str) -> Any:
    for read in (json.loads, float):  # JSON has no numbers such as .01
        with suppress(ValueError):
            return read(text)
    return text
