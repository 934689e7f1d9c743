"""Records on disk: JSON lines, one for each evaluation. Files of several goes or machines can be put behind one another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Record = dict[str, Any]
FILE = "records.jsonl"


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Add records at the end, on disk before this returns. What a crash left unfinished there is cut off first."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    with path.open("ab") as file:
        _mend(path)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _mend(path: Path) -> None:
    content = path.read_bytes()
    if content.endswith(b"\n") or not content:
        return
    kept, tail = content.rpartition(b"\n")[0], content.rpartition(b"\n")[2]
    if _parsed(tail) is not None:  # whole but for its end
        with path.open("ab") as file:
            file.write(b"\n")
    else:
        os.truncate(path, len(kept) + 1 if kept else 0)


def _parsed(line: bytes) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:  # also a letter that was cut in two
        return None
    return found if isinstance(found, dict) and {"run", "step"} <= set(found) else None


def read_records(*paths: Path) -> list[Record]:
    """All records of files, in their order. A last line that was cut off by a crash is left out; another is an error."""
    found = []
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            record = _parsed(line)
            if record is not None:
                found.append(record)
            elif number < len(lines):
                raise ValueError(f"{path}, line {number} is not a record; delete the line, and its run will be done again")
    return found


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
