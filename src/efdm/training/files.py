"""Small files of a run: JSON, and JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from efdm.files import atomic_write

Record = dict[str, Any]


def write_json(path: Path, content: object) -> None:
    """At once, so that a crash leaves the old or the new file."""
    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def rounded(value: float) -> float:
    """To six digits; the others would be noise."""
    return float(f"{value:.6g}")


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Records, one a line, instead of what the file had; at once, too."""
    with atomic_write(path) as file:
        file.writelines((json.dumps(record) + "\n").encode() for record in records)


def read_lines(path: Path, keys: Collection[str] = ()) -> list[Record]:
    """The records of a file, one a line, each with ``keys``. A last line that was cut off by a crash is left out; another
    that is no record is an error."""
    found = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = _parsed(line, keys)
        if record is not None:
            found.append(record)
        elif number < len(lines):
            raise ValueError(f"{path}, line {number} is not a record; delete the line")
    return found


def mend_lines(path: Path, keys: Collection[str] = ()) -> None:
    """Cut off what a crash left unfinished at the end of a file, so that the next record begins on a line of its own."""
    content = path.read_bytes()
    if content.endswith(b"\n") or not content:
        return
    begin = content.rfind(b"\n") + 1
    if _parsed(content[begin:], keys) is None:
        os.truncate(path, begin)
    else:  # whole but for its end
        with path.open("ab") as file:
            file.write(b"\n")


def _parsed(line: bytes, keys: Collection[str]) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:  # also a letter that was cut in two
        return None
    return found if isinstance(found, dict) and found.keys() >= set(keys) else None
