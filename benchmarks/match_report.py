"""Reports of benchmark records: the output of `match.py` and the speed table of the README.

python benchmarks/match_report.py            print a report of every record
python benchmarks/match_report.py --readme   also update the table in README.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from documents import README, Table, parse_update_flag, update_documents

HERE = Path(__file__).parent

Record = dict[str, Any]

IN_README = ((1, 512, 64, 64), (32, 64, 56, 56), (128, 64, 56, 56), (8, 64, 256, 256), (1, 3, 3000, 4000))


def records() -> list[Record]:
    files = (HERE / "results" / f"{device}.json" for device in ("cpu", "cuda"))
    return [json.loads(file.read_text()) for file in files if file.exists()]


def _us(row: Record, name: str) -> float:
    return row["times"][name]["median_us"]


def _ratio(row: Record, of: str, to: str) -> float:
    return _us(row, of) / _us(row, to)


def _device_ratio(row: Record, of: str, to: str) -> float:
    """Return the ratio of device times. In a queue, the host determines the time of small calls."""
    return row["times"][of]["device_us"] / row["times"][to]["device_us"]


def _adain_float32(record: Record, row: Record) -> float:
    """Return the time of eager AdaIN in float32 for the same case and values."""
    return next(
        _us(r, "adain")
        for r in record["rows"]
        if r["dtype"] == "float32" and r["case"] == row["case"] and r["values"] == row["values"]
    )


def _time_or_median(row: Record, which: str) -> float:
    return row["times"]["efdm"].get(which) or _us(row, "efdm")


def targets(record: Record) -> list[tuple[str, float, str, float, bool]]:
    """Return the performance targets of a record as (description, value, relation, bound, met)."""
    rows: list[tuple[str, float, str, float]] = []
    for row in record["rows"]:
        n = row["shape"][2] * row["shape"][3]
        label = f"{row['case']} {row['dtype']} {row['values']}"
        speedup = _ratio(row, "three_sort", "efdm")
        if row["values"] == "8-bit levels":
            rows.append((f"{label}: three-sort / efdm", speedup, ">=", 14.0))
            continue
        if "efdm_tolerant" in row["times"]:
            on_device = record["environment"]["device"] != "cpu"
            tolerant = (_device_ratio if on_device else _ratio)(row, "efdm_tolerant", "efdm")
            rows.append((f"{label}: with a tolerance / efdm", tolerant, "<=", 1.5))
        if record["environment"]["device"] == "cpu":
            rows.append((f"{label}: three-sort / efdm", speedup, ">=", 8.0 if row["shape"][0] == 1 else 6.0))
            rows.append((f"{label}: efdm / eager AdaIN", _ratio(row, "efdm", "adain"), "<=", 1.2))
            continue
        if n <= 4096:
            rows.append((f"{label}: three-sort / efdm", speedup, ">=", 4.0 if row["dtype"] == "float32" else 6.0))
            if row["dtype"] == "bfloat16":
                against = _us(row, "efdm") / _adain_float32(record, row)
                rows.append((f"{label}: efdm / eager AdaIN in float32", against, "<=", 1.0))
        elif row["dtype"] == "float32":
            rows.append((f"{label}: three-sort / efdm", speedup, ">=", 2.5))
        rows.append(
            (f"{label}: prepared / unprepared, device time", _device_ratio(row, "efdm_prepared", "efdm"), "<=", 0.65)
        )
    return [(w, v, r, b, v >= b if r == ">=" else v <= b) for w, v, r, b in rows]


def report(record: Record) -> str:
    """Return a text report: times and ratios, the baselines that are faster, and the targets."""
    e = record["environment"]
    lines = [f"{e['device_name']}, torch {e['versions']['torch']}, commit {e['commit']}, {e['date']}", ""]
    head = (
        "case",
        "dtype",
        "values",
        "efdm us",
        "+-",
        "alone",
        "device",
        "/three-sort",
        "/AdaIN",
        "/comp.",
        "/copy",
        "prep.",
        "layer",
    )
    lines.append("{:26} {:9} {:12} {:>9} {:>6} {:>8} {:>8} {:>11} {:>7} {:>7} {:>6} {:>6} {:>6}".format(*head))
    slower = []
    for row in record["rows"]:
        against = {name: _ratio(row, "efdm", name) for name in ("three_sort", "adain", "adain_compiled", "copy_limit")}
        lines.append(
            f"{row['case']:26} {row['dtype']:9} {row['values']:12} {_us(row, 'efdm'):9.1f} "
            f"{row['times']['efdm']['spread_us']:6.1f} "
            f"{_time_or_median(row, 'alone_us'):8.1f} {_time_or_median(row, 'device_us'):8.1f} "
            f"{against['three_sort']:11.3f} {against['adain']:7.2f} "
            f"{against['adain_compiled']:7.2f} {against['copy_limit']:6.1f} "
            f"{_ratio(row, 'efdm_prepared', 'efdm'):6.2f} {_ratio(row, 'efdmix_layer', 'efdm'):6.2f}"
        )
        names = {"adain": "eager AdaIN", "adain_compiled": "compiled AdaIN"}
        slower += [
            f"  {row['case']} {row['dtype']} {row['values']}: {against[k]:.2f}x the time of {v} ({row['dtype']})"
            for k, v in names.items()
            if against[k] > 1
        ]
    lines += ["", "slower than:", *(slower or ["  no measured baseline"]), "", "targets:"]
    lines += [f"  {'met   ' if met else 'MISSED'} {v:7.3f} {r} {b:<5} {what}" for what, v, r, b, met in targets(record)]
    return "\n".join(lines)


def readme_table(all_records: list[Record]) -> str:
    """Return the README table: the cases in IN_README, features after ReLU."""
    lines = ["| machine | features | dtype | `efdm` | paper's three sorts | AdaIN eager / compiled | prepared style |"]
    lines.append("|---|---|---|---|---|---|---|")
    for record in all_records:
        e = record["environment"]
        machine = e["device_name"] if e["device"] == "cuda" else f"{e['threads']} CPU cores"
        for row in record["rows"]:
            if row["values"] == "before ReLU" or tuple(row["shape"]) not in IN_README:
                continue
            shape = " x ".join(map(str, row["shape"]))
            lines.append(
                f"| {machine} | {shape} | {row['dtype']} | **{_time(row, 'efdm')}** | {_time(row, 'three_sort')} "
                f"({_ratio(row, 'three_sort', 'efdm'):.1f}x) | {_time(row, 'adain')} / {_time(row, 'adain_compiled')} "
                f"| {_time(row, 'efdm_prepared')} |"
            )
    return "\n".join(lines)


def _time(row: Record, name: str) -> str:
    us = _us(row, name)
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.0f} µs"


TABLES = (Table(README, "speed table", "match_report.py", lambda: readme_table(records())),)


if __name__ == "__main__":
    if parse_update_flag(__doc__):
        update_documents(TABLES)
    print("\n\n".join(report(r) for r in records()))
