"""Make the table of colour matching in the guide from the committed records.

python benchmarks/colours_report.py            print it
python benchmarks/colours_report.py --readme   put it into docs/guide/match-colours.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from documents import ROOT, Table, main, markdown

RESULTS = Path(__file__).parent / "results"
GUIDE = ROOT / "docs" / "guide" / "match-colours.md"


def record(device: str) -> dict[str, Any] | None:
    path = RESULTS / f"colours-{device}.json"
    return json.loads(path.read_text()) if path.exists() else None


def times(device: str) -> dict[str, float]:
    """Return the seconds of every timed row, by name."""
    found = record(device)
    return {row["name"]: row["seconds"] for row in found["rows"] if "seconds" in row} if found else {}


def colours_table() -> str:
    cpu, gpu = times("cpu"), times("cuda")
    columns = {"2 cores": cpu, **({"GPU": gpu} if gpu else {})}
    rows = []
    for row in (record("cpu") or {"rows": []})["rows"]:
        spent = (f"{found[row['name']] * 1000:.0f} ms" if row["name"] in found else "" for found in columns.values())
        rows.append([row["name"], f"{row['channels']:.3f}", f"{row['joint']:.2f}", *spent])
    return markdown(["", "channels ↓", "joint ↓", *columns], rows)


TABLES = (Table(GUIDE, "colours table", "colours_report.py", colours_table),)


if __name__ == "__main__":
    main(TABLES, __doc__)
