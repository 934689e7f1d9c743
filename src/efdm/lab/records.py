"""Records on disk: JSON lines, one per evaluation. Files of several machines can be concatenated.

Records do not repeat the settings of a run, which are in ``recipe.json``, except for the hash of its weights, which may be
missing there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from efdm.training.files import Record, mend_lines, read_lines

RECORDS = "records.jsonl"
KEYS = ("run", "step")  # required of every record


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records and flush them to disk. A last line that a crash left incomplete is removed first."""
    lines = "".join(json.dumps(_without_settings(record), separators=(",", ":")) + "\n" for record in records).encode()
    with path.open("ab") as file:
        mend_lines(path, KEYS)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _without_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in record.items() if name != "settings"}
    weights = record.get("settings", {}).get("weights_sha256")
    return {**rest, "weights_sha256": weights} if weights else rest


def read_records(*paths: Path) -> list[Record]:
    """Return the records of all files in order. An incomplete last line is skipped; any other bad line raises."""
    return [record for path in paths for record in read_lines(path, KEYS)]


def by_run(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of every run by increasing step, each step once.

    If a run was repeated, its first complete attempt is used. Attempts are never mixed, because on a GPU they may differ in
    the last digits.
    """
    attempts: dict[str, list[list[Record]]] = {}
    for record in records:
        of_run = attempts.setdefault(record["run"], [])
        if not of_run or record["step"] <= of_run[-1][-1]["step"]:
            of_run.append([])
        of_run[-1].append(record)
    return {run: next(filter(complete, of_run), max(of_run, key=len)) for run, of_run in attempts.items()}


def complete(records: list[Record]) -> bool:
    """Return True if the records include the last evaluation of a run."""
    return bool(records) and bool(records[-1].get("last"))
