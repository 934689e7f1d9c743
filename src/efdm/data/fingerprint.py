"""Descriptions of data sets, so that a run resumes only with the pictures it was started with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from efdm.data.domains import DomainSet
from efdm.errors import RunFolderError

SHA256 = "pictures_sha256"


def describe(data: Any) -> dict[str, Any]:
    """Return the counts and the fingerprint of a `DomainSet` or of sets of people, for JSON."""
    splits = {"splits": data.counts("split")} if isinstance(data, DomainSet) else {}
    return {"pictures": data.counts(), **splits, SHA256: data.fingerprint()}


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: str | os.PathLike[str]) -> None:
    """Raise `RunFolderError` if the data that ``now`` describes differ from those with which ``folder`` was started.

    Entries missing from either description are not compared, because older folders hold only counts.
    """
    for entry in ("pictures", "splits", SHA256):
        if entry in before and entry in now and before[entry] != now[entry]:
            what = "names, sizes, labels or splits differ" if entry == SHA256 else _difference(before[entry], now[entry])
            message = f"{folder} was started with other data ({what}); use the same data or choose another folder"
            raise RunFolderError(message, folder, "other data")


def _difference(before: Any, now: Any, path: str = "pictures") -> str:
    """Return the first entry in which two nested counts differ, such as ``photo/dog: 3 before, now 2``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        name = next(name for name in {**before, **now} if before.get(name, 0) != now.get(name, 0))
        return _difference(before.get(name) or {}, now.get(name) or {}, name if path == "pictures" else f"{path}/{name}")
    return f"{path}: {before or 0} before, now {now or 0}"
