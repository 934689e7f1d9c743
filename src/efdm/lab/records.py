"""Records on disk: JSON lines, one for each evaluation. Files of several goes or machines can be put behind one another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from efdm.training.files import Record, mend_lines, read_lines

FILE = "records.jsonl"
KEYS = ("run", "step")  # what makes a line a record


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add records at the end, on disk before this returns. What a crash left unfinished there is cut off first."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    with path.open("ab") as file:
        mend_lines(path, KEYS)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def read_records(*paths: Path) -> list[Record]:
    """All records of files, in their order. A last line that was cut off by a crash is left out; another is an error."""
    try:
        return [record for path in paths for record in read_lines(path, KEYS)]
    except ValueError as error:
        raise ValueError(f"{error}, and its run will be done again") from error


def by_run(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of every run, by rising steps, each step once.

    A run that was done twice is taken from its first complete go. The goes are not mixed: on a GPU they may differ in the
    last digits.
    """
    goes: dict[str, list[list[Record]]] = {}
    for record in records:
        mine = goes.setdefault(record["run"], [])
        if not mine or record["step"] <= mine[-1][-1]["step"]:
            mine.append([])
        mine[-1].append(record)
    return {run: next((go for go in mine if complete(go)), max(mine, key=len)) for run, mine in goes.items()}


def complete(records: list[Record]) -> bool:
    """Whether a run came to its end."""
    return bool(records) and bool(records[-1].get("last"))
