"""Settings of a run: validated on creation, stored with the results, and compared when the run is resumed."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import dataclass_transform

from efdm.errors import DamagedFileError, RunFolderError, SettingError
from efdm.text import suggest
from efdm.training.capture import Speed
from efdm.training.device import Precision
from efdm.training.schedules import Schedule

FILE = "settings.json"  # file name in the folder of a run

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
# paths and devices are stored as strings, lists and single names as tuples
Text = Annotated[str, BeforeValidator(lambda v: str(v) if isinstance(v, os.PathLike | torch.device) else v)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else tuple(v) if isinstance(v, list) else v)
]
Options = Annotated[dict[str, Any], BeforeValidator(lambda v: dict(v) if isinstance(v, Mapping) else v)]

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def validated(cls: type[Class]) -> type[Class]:
    """Make a frozen, keyword-only pydantic dataclass that raises `SettingError` with the name of the invalid field."""
    made = dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))(cls)
    checked = made.__init__

    def init(self: Any, *given: Any, **named: Any) -> None:
        try:
            checked(self, *given, **named)
        except ValidationError as error:
            raise setting_error(error, made) from None

    made.__init__ = init  # type: ignore[method-assign, assignment]
    return made  # type: ignore[return-value]


def setting_error(error: ValidationError, cls: type) -> SettingError:
    """Return the first error of a validation as a sentence: ``lr must be greater than or equal to 0, got -1``.

    Unknown names come first, because a misspelt name also leaves a required setting without a value.
    """
    first = min(error.errors(), key=lambda each: each["type"] != "unexpected_keyword_argument")
    if isinstance(raised := first.get("ctx", {}).get("error"), SettingError):
        return raised
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "unexpected_keyword_argument":
        close = suggest(name, names)
        return SettingError(f"{cls.__name__} has no setting {name!r}" + (f"; did you mean {close}?" if close else ""), name)
    if first["type"] == "unexpected_positional_argument":
        return SettingError(f"{cls.__name__} takes this setting by name only: {first['input']!r}")
    if first["type"] in ("missing", "missing_argument"):
        return SettingError(f"{name} is missing", name)
    message = re.sub(r"^\w+ should", "must", first["msg"]).partition(" after validation")[0]
    return SettingError(f"{name} {message}, got {first['input']!r}", name)


@validated
class TrainSettings:
    """Settings that all training tasks share."""

    iterations: Count = 1000
    batch: Count = 64
    lr: NonNegative = 1e-3
    schedule: Schedule = "cosine"
    weight_decay: NonNegative = 0.0
    seed: int = 0
    device: Text = "cpu"
    precision: Precision = "fp32"
    speed: Speed = "plain"
    log_every: Count = 50  # iterations
    save_every: Natural = 1000  # 0: only every `efdm.training.fit.SECONDS`, at the end of a phase and on interruption

    # settings that may change when a run is resumed
    movable: ClassVar[tuple[str, ...]] = ("device", "speed", "log_every", "save_every")
    # settings that may be paths of files, which may be moved between runs
    files: ClassVar[tuple[str, ...]] = ()

    def fixed(self) -> dict[str, Any]:
        """Return the settings that must stay the same when the run is resumed."""
        return {name: value for name, value in values_of(self).items() if name not in (*self.movable, *self.files)}


Settings = TypeVar("Settings", bound=TrainSettings)


def values_of(settings: TrainSettings) -> dict[str, Any]:
    return dataclasses.asdict(settings)  # type: ignore[call-overload, no-any-return]


def public(settings: TrainSettings) -> dict[str, Any]:
    """Return the settings to store in a published file, with paths reduced to file names."""
    return {**values_of(settings), **{name: Path(getattr(settings, name)).name for name in settings.files}}


def read_settings(cls: type[Settings], folder: Path) -> Settings:
    """Return the settings that the run in ``folder`` was started with. Missing ones take their defaults."""
    path = folder / FILE
    if not path.is_file():
        raise RunFolderError(f"{folder} holds no run to resume; start a new one", folder, "not started")
    try:
        values = json.loads(path.read_text())
        if not isinstance(values, dict):
            raise ValueError("expected a JSON object")
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise DamagedFileError(path, f"not the settings of a run ({error})", "start a run in another folder") from error


def check_same_run(settings: TrainSettings, folder: Path) -> None:
    """Raise RunFolderError unless the run in ``folder`` was started with these settings."""
    before = read_settings(type(settings), folder).fixed()
    differ = {name: value for name, value in settings.fixed().items() if value != before.get(name)}
    if differ:
        changes = ", ".join(f"{name}={before.get(name)!r}, not {value!r}" for name, value in differ.items())
        message = f"the run in {folder} was started with {changes}; resume it with its own settings, or start another run"
        raise RunFolderError(message, folder, "other settings")
