"""The small files of a run: JSON, and JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from efdm.errors import DamagedFileError
from efdm.files import atomic_write

Record = dict[str, Any]


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically."""
    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def rounded(value: float) -> float:
    """Round to six significant digits."""
    return float(f"{value:.6g}")


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Replace the content of a file by these records, one per line, atomically."""
    with atomic_write(path) as file:
        file.writelines((json.dumps(record) + "\n").encode() for record in records)


def append_line(path: Path, record: Record) -> None:
    """Append a record to a file of JSON lines."""
    try:
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:  # the error for a full disk does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_lines(path: Path, keys: Collection[str] = ()) -> list[Record]:
    """Return the records of a file of JSON lines, each of which has ``keys``.

    An incomplete last line, as left by a crash, is skipped. Any other invalid line raises DamagedFileError.
    """
    found = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = _parsed(line, keys)
        if record is not None:
            found.append(record)
        elif number < len(lines):
            raise DamagedFileError(path, f"line {number} is not a record", "delete the line")
    return found


def mend_lines(path: Path, keys: Collection[str] = ()) -> None:
    """Remove an incomplete last line that a crash left, so that the next record starts on a new line."""
    content = path.read_bytes()
    if content.endswith(b"\n") or not content:
        return
    begin = content.rfind(b"\n") + 1
    if _parsed(content[begin:], keys) is None:
        os.truncate(path, begin)
    else:  # only the line break is missing
        with path.open("ab") as file:
            file.write(b"\n")


def _parsed(line: bytes, keys: Collection[str]) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:  # also for a character cut in two
        return None
    return found if isinstance(found, dict) and found.keys() >= set(keys) else None
