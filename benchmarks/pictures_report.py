"""The table of style transfer in the README, from records: quality, and time where it was measured.

python benchmarks/pictures_report.py            print it
python benchmarks/pictures_report.py --readme   put it into README.md
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
README = ROOT / "README.md"
RECORDS = ROOT / "results" / "style" / "evaluation" / "records.jsonl"
BEGIN, END = "<!-- style table: made by benchmarks/pictures_report.py -->", "<!-- end of style table -->"

Record = dict[str, Any]


def quality() -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for line in RECORDS.read_text().splitlines():
        record = json.loads(line)
        found.setdefault(record["label"], []).append(record["measures"])
    return found


def speed() -> list[Record]:
    files = (HERE / "results" / f"pictures-{device}.json" for device in ("cpu", "cuda"))
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _time(network: str) -> str:
    """The time of one picture with a prepared style, on every device that has a record."""
    told = []
    for record in speed():
        on_gpu = record["environment"]["device"] == "cuda"
        row = next(
            r for r in record["rows"]
            if (r["network"], r["method"], r["way"], r["batch"]) == (network, "efdm", "prepared", 1)
        )  # fmt: skip
        told.append(f"{row['seconds'] * 1e3:.1f} ms (H200)" if on_gpu else f"{row['seconds']:.2f} s (2 CPU cores)")
    return ", ".join(told) or "not measured"


def mean(records: list[Record], measure: str) -> str:
    values = [r[measure] for r in records if r[measure] is not None]
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


def table() -> str:
    lines = [
        "| model | content LPIPS ↓ | style distance ↓ | 512 x 512, prepared style |",
        "|---|---|---|---|",
    ]
    for label, records in quality().items():
        network, _, strength = label.partition(" efdm ")
        time = _time(network) if strength == "1" else ""  # below 1 some stages run twice
        name = f"`{network}`, strength {strength}" if strength else label
        lines.append(f"| {name} | {mean(records, 'lpips')} | {mean(records, 'style_distance')} | {time} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true")
    if parser.parse_args().readme:
        README.write_text(with_table(README.read_text()))
    print(table())
