"""Reports of benchmark records: the output of `match.py` and the speed table of the README.

python benchmarks/match_report.py            print the table and a report of every record
python benchmarks/match_report.py --readme   also update the table in README.md
"""

from collections.abc import Iterator
from typing import Any

from documents import README, Table, main, markdown
from records import read_record

Record = dict[str, Any]
Target = tuple[str, float, str, float]  # description, value, relation, bound
IN_README = ((1, 512, 64, 64), (32, 64, 56, 56), (128, 64, 56, 56), (8, 64, 256, 256), (1, 3, 3000, 4000))
# columns of a report and their formats
COLUMNS = {
    "case": "26", "dtype": "9", "values": "12", "efdm us": "9.1f", "+-": "6.1f", "alone": "8.1f", "device": "8.1f",
    "/three-sort": "11.3f", "/AdaIN": "7.2f", "/comp.": "7.2f", "/copy": "6.1f", "prep.": "6.2f", "layer": "6.2f",
}  # fmt: skip


def records() -> list[Record]:
    return [read_record(f"{device}.json") for device in ("cpu", "cuda")]


def _us(row: Record, name: str) -> float:
    return row["times"][name]["median_us"]


def _ratio(row: Record, of: str, to: str) -> float:
    return _us(row, of) / _us(row, to)


def _device_ratio(row: Record, of: str, to: str) -> float:
    """Return the ratio of device times. In a queue, the host determines the time of small calls."""
    return row["times"][of]["device_us"] / row["times"][to]["device_us"]


def _adain_float32(record: Record, row: Record) -> float:
    """Return the time of eager AdaIN in float32 for the same case and values."""
    same = {"case": row["case"], "values": row["values"], "dtype": "float32"}
    return next(_us(r, "adain") for r in record["rows"] if same.items() <= r.items())


def _targets(record: Record, row: Record) -> Iterator[Target]:
    on_cpu, positions = record["environment"]["device"] == "cpu", row["shape"][2] * row["shape"][3]
    speedup = _ratio(row, "three_sort", "efdm")
    if row["values"] == "8-bit levels":
        yield "three-sort / efdm", speedup, ">=", 14.0
        return
    tolerant = (_ratio if on_cpu else _device_ratio)(row, "efdm_tolerant", "efdm")
    yield "with a tolerance / efdm", tolerant, "<=", 1.5
    if on_cpu:
        yield "three-sort / efdm", speedup, ">=", 8.0 if row["shape"][0] == 1 else 6.0
        yield "efdm / eager AdaIN", _ratio(row, "efdm", "adain"), "<=", 1.2
        return
    if positions <= 4096:
        yield "three-sort / efdm", speedup, ">=", 4.0 if row["dtype"] == "float32" else 6.0
        if row["dtype"] == "bfloat16":
            yield "efdm / eager AdaIN in float32", _us(row, "efdm") / _adain_float32(record, row), "<=", 1.0
    elif row["dtype"] == "float32":
        yield "three-sort / efdm", speedup, ">=", 2.5
    yield "prepared / unprepared, device time", _device_ratio(row, "efdm_prepared", "efdm"), "<=", 0.65


def targets(record: Record) -> list[tuple[str, float, str, float, bool]]:
    """Return the performance targets of a record as (description, value, relation, bound, met)."""
    return [
        (f"{_label(row)}: {what}", value, relation, bound, value >= bound if relation == ">=" else value <= bound)
        for row in record["rows"]
        for what, value, relation, bound in _targets(record, row)
    ]


def _label(row: Record) -> str:
    return f"{row['case']} {row['dtype']} {row['values']}"


def report(record: Record) -> str:
    """Return a text report: times and ratios, the baselines that are faster, and the targets."""
    e = record["environment"]
    lines = [f"{e['device_name']}, torch {e['versions']['torch']}, commit {e['commit']}, {e['date']}", ""]
    lines.append(" ".join(f"{name:{'>' if '.' in form else ''}{form.partition('.')[0]}}" for name, form in COLUMNS.items()))
    slower = []
    for row in record["rows"]:
        us, times = _us(row, "efdm"), row["times"]["efdm"]
        ratios = {name: us / _us(row, name) for name in ("three_sort", "adain", "adain_compiled", "copy_limit")}
        more = (_ratio(row, name, "efdm") for name in ("efdm_prepared", "efdmix_layer"))
        on_gpu = (times.get(name) or us for name in ("alone_us", "device_us"))
        cells = (row["case"], row["dtype"], row["values"], us, times["spread_us"], *on_gpu, *ratios.values(), *more)
        lines.append(" ".join(f"{cell:{form}}" for cell, form in zip(cells, COLUMNS.values(), strict=True)))
        for name, words in {"adain": "eager AdaIN", "adain_compiled": "compiled AdaIN"}.items():
            if ratios[name] > 1:
                slower.append(f"  {_label(row)}: {ratios[name]:.2f}x the time of {words} ({row['dtype']})")
    lines += ["", "slower than:", *(slower or ["  no measured baseline"]), "", "targets:"]
    lines += [f"  {'met   ' if met else 'MISSED'} {v:7.3f} {r} {b:<5} {what}" for what, v, r, b, met in targets(record)]
    return "\n".join(lines)


def readme_table(all_records: list[Record]) -> str:
    """Return the README table: the cases in IN_README, features after ReLU."""
    rows = []
    for record in all_records:
        e = record["environment"]
        machine = e["device_name"] if e["device"] == "cuda" else f"{e['threads']} CPU cores"
        for row in record["rows"]:
            if row["values"] == "before ReLU" or tuple(row["shape"]) not in IN_README:
                continue
            shape = " x ".join(map(str, row["shape"]))
            sorts = f"{_time(row, 'three_sort')} ({_ratio(row, 'three_sort', 'efdm'):.1f}x)"
            adain = f"{_time(row, 'adain')} / {_time(row, 'adain_compiled')}"
            own = f"**{_time(row, 'efdm')}**"
            rows.append([machine, shape, row["dtype"], own, sorts, adain, _time(row, "efdm_prepared")])
    head = ["machine", "features", "dtype", "`efdm`", "paper's three sorts", "AdaIN eager / compiled", "prepared style"]
    return markdown(head, rows)


def _time(row: Record, name: str) -> str:
    us = _us(row, name)
    return f"{us / 1000:.1f} ms" if us >= 1000 else f"{us:.0f} µs"


TABLES = (Table(README, "speed table", "match_report.py", lambda: readme_table(records())),)


if __name__ == "__main__":
    main(TABLES, __doc__)
    print("\n\n".join(report(r) for r in records()))
