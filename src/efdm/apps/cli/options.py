"""Options and parsers shared by the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from efdm.errors import SettingError
from efdm.training.device import check_device, default_device

Word = str | None
Words = list[str] | None
Paths = list[Path] | None
MAX_METAVAR = 22  # characters that fit the column of a terminal of 80 characters


def option(help: str, *names: str, **arguments: Any) -> Any:
    """Return an option. ``names`` default to that of the parameter; ``arguments`` are those of `typer.Option`."""
    return typer.Option(*names, help=help, **arguments)


def choice(names: Iterable[str], help: str) -> Any:
    """Return an option whose help and completion list ``names``. The library checks the value."""
    listed = f"[{'|'.join(names)}]"
    is_short = len(listed) <= MAX_METAVAR
    if not is_short:  # lines would break inside names
        help = f"{help} One of {', '.join(names)}."
    return option(help, metavar=listed if is_short else "NAME", autocompletion=complete(names))


def complete(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes the start of a name."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Device = Annotated[Word, option("cpu, cuda or cuda:1. Default: the GPU if one is available.")]


def resolve_device(name: str | None) -> torch.device:
    """Return the named or the default device. Raise SettingError if it cannot be used."""
    return check_device(name or default_device())


def given_fields(context: typer.Context, kind: type) -> dict[str, Any]:
    """Return the parameters of the running command that are fields of a dataclass."""
    return {field.name: context.params[field.name] for field in fields(kind) if field.name in context.params}


def parse_shard(text: str | None) -> tuple[int, int]:
    """Parse "2/4" as the second of four shards. None and "" mean a single shard."""
    index, _, count = (text or "1/1").partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise SettingError(f"shard must be i/n, such as 2/4 for the second of four, got {text!r}", "shard")
    return int(index), int(count)


def parse_pairs(setting: str, words: Sequence[str] | None, value: str = "FILE") -> dict[str, str]:
    """Parse pairs such as NAME=FILE. ``value`` describes what follows the name."""
    pairs = [word.partition("=") for word in words or ()]
    if wrong := ["".join(parts) for parts in pairs if not all(parts)]:
        raise SettingError(f"{setting} must be NAME={value}, got {wrong[0]!r}", setting)
    parsed = {name: text for name, _, text in pairs}
    if len(parsed) < len(pairs):
        raise SettingError(f"{setting} has the same NAME twice; got {', '.join(words or ())}", setting)
    return parsed
