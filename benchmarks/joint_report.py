"""Make the tables of joint matching in the guide from the records.

python benchmarks/joint_report.py            print them
python benchmarks/joint_report.py --readme   put them into docs/guide/operations.md
"""

from __future__ import annotations

import json

from documents import ROOT, Table, main, markdown

from efdm.stats import with_error
from efdm.style.evaluate import read_records
from efdm.style.report import Group, groups, mean_and_error

GUIDE = ROOT / "docs" / "guide" / "operations.md"
RUN = ROOT / "results" / "style" / "joint"  # of `efdm evaluate style --method efdm --method wct --method joint`
MEASURES = {"lpips": "content LPIPS ↓", "style_distance": "style distance ↓", "gram_distance": "Gram error ↓"}


def distances_table() -> str:
    record = json.loads((ROOT / "benchmarks" / "results" / "joint-cpu.json").read_text())
    found = {(row["layer"], row["candidate"]): row for row in record["distances"]}
    layers = sorted({layer for layer, _ in found})
    rows = []
    for name in dict.fromkeys(candidate for _, candidate in found):
        cells = [found[layer, name] for layer in layers]
        shares = [f"{row['share']:.2f} ({row['least']:.2f}-{row['most']:.2f})" for row in cells]
        rows.append([name, *shares, *("-" if name == "halves" else f"{row['gram_error']:.3f}" for row in cells)])
    return markdown(["match", *layers, *(f"Gram error, {layer}" for layer in layers)], rows)


def pictures_table() -> str:
    found = [group for group in groups(read_records(RUN)) if "model" in group.candidate]
    names = [[f"`{group.candidate[key]}`" for key in ("model", "method")] for group in found]
    rows = [[*name, *(format_mean(group, each) for each in MEASURES)] for name, group in zip(names, found, strict=True)]
    pairs, side = len(found[0].records), found[0].records[0]["settings"]["size"]
    table = markdown(["model", "method", *MEASURES.values()], rows)
    return f"Means over {pairs} held-out pairs at {side} pixels ± standard errors:\n\n{table}"


def format_mean(group: Group, measure: str) -> str:
    return with_error(*mean_and_error(group.values(measure)), ".3f")


TABLES = [Table(GUIDE, "joint table", "joint_report.py", distances_table)]
if RUN.exists():
    TABLES.append(Table(GUIDE, "joint pictures table", "joint_report.py", pictures_table))


if __name__ == "__main__":
    main(TABLES, __doc__)
