"""What the commands of ``efdm dg`` have in common: the words of a command line, the pictures, and what is said of errors."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

from efdm.apps.tell import tell
from efdm.data.digits import load_digits_domains
from efdm.data.domains import DomainSet, load_domains
from efdm.data.pacs import load_pacs
from efdm.dg.settings import Settings
from efdm.ops.choices import check_choice

EXPECTED = (ValueError, TypeError, OSError, ImportError, FloatingPointError)  # OSError: pictures, weights, folders
DIGITS, PACS = "digits", "pacs"
Reading = Callable[[int, int], None]


@contextmanager
def sentences(console: Console, interrupted: Callable[[], str]) -> Iterator[None]:
    """What goes wrong is one sentence and an exit code: 2, or 130 after Ctrl-C, when ``interrupted`` says how to go on."""
    try:
        yield
    except EXPECTED as error:
        tell(console, error)
        raise typer.Exit(2) from error
    except torch.OutOfMemoryError as error:
        tell(console, "the GPU has not enough memory for this; try fewer --lanes, a smaller batch, or --device cpu")
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print(interrupted(), soft_wrap=True, markup=False, highlight=False)
        raise typer.Exit(130) from None


# --- words -----------------------------------------------------------------------------------------------------------


def names(given: Sequence[str] | None, known: Sequence[str] = ()) -> list[str] | None:
    """Names with commas between them; a known one may have a comma itself. None when nothing was given."""
    parts = [[one] if one in known else one.split(",") for one in given or ()]
    return [name.strip() for part in parts for name in part if name.strip()] or None


def seeds(given: str) -> list[int] | None:
    """ "5" is the seeds 0 to 4, "0,3" those two, "3," that one alone."""
    if not given:
        return None
    try:
        found = [int(part) for part in given.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found or min(found) < 0 or ("," not in given and found[0] == 0):
        raise ValueError(f"--seeds {given} is no count and no list of seeds; write 5 for 0 to 4, or 0,3 for those two")
    return list(dict.fromkeys(found)) if "," in given else list(range(found[0]))


def changes(given: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE for settings: numbers, words, words with commas for several, JSON for ``options``."""
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    made = {}
    for word in given or ():
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"--set {word} should be NAME=VALUE, such as lr=0.01")
        check_choice("--set", name, fields)
        made[name] = _value(name, text, fields[name].default)
    return made


def _value(name: str, text: str, default: object) -> Any:
    if isinstance(default, tuple) or name.endswith("_domains"):
        return tuple(names([text]) or ())
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    wanted = int if isinstance(default, int) else float if isinstance(default, float) else None
    if wanted is not None and name != "domains_per_batch" and not isinstance(value, (int, wanted)):
        raise ValueError(f"--set {name}={text}: expected a number such as {default}")
    if name == "options" and not isinstance(value, dict):
        raise ValueError(f'--set {name}={text}: expected options of the method as JSON, such as {{"alpha": 0.3}}')
    return str(text) if isinstance(default, str) else value


def suited(device: torch.device, own: Mapping[str, Any], *, trainings: str = "one") -> dict[str, Any]:
    """How to train on a device, where nothing else was said. Compiling takes a minute, which "many" trainings share."""
    compiles = trainings == "many" and importlib.util.find_spec("triton") is not None
    told: dict[str, Any] = {"precision": "fp32", "speed": "plain", "log_every": 10}
    if device.type == "cuda":
        told = {"precision": "bf16", "speed": "compile+graph" if compiles else "graph"}
    return {"device": str(device), **{name: value for name, value in told.items() if name not in own}}


# --- pictures --------------------------------------------------------------------------------------------------------


def open_pictures(
    kind: str, sources: Sequence[Path], size: int, *, reading: Reading | None = None, **pacs: Any
) -> DomainSet:
    """The embedded digits, PACS, or any folder or zip that lies as domain/class/picture; ``pacs`` goes to `load_pacs`."""
    if kind == DIGITS:
        return load_digits_domains(size=size)
    if kind == PACS:
        return load_pacs(list(sources), size=size, progress=reading, **pacs)
    return load_domains(list(sources), size=size, progress=reading)


def kind_of(sources: Sequence[Path]) -> str:
    """ "digits" when the word itself was given; a folder of that name is ./digits."""
    return DIGITS if [str(source) for source in sources] == [DIGITS] else "folder"


def tell_skipped(console: Console, data: DomainSet, where: str) -> None:
    if data.skipped:
        first = data.skipped[0][1]
        told = f"left out because they could not be used: {len(data.skipped)} of {len(data) + len(data.skipped)} pictures"
        console.print(f"{told} ({first}); {where} names them", soft_wrap=True, markup=False, highlight=False)
