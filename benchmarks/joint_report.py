"""Render the tables of joint matching in docs/guide/operations.md from the committed records.

python benchmarks/joint_report.py            print the tables
python benchmarks/joint_report.py --readme   update them in the document
"""

from __future__ import annotations

from documents import ROOT, Table, main, markdown
from pictures_report import cell
from records import read_record

from efdm.style.evaluate import read_records
from efdm.style.report import groups

GUIDE = ROOT / "docs" / "guide" / "operations.md"
RUN = ROOT / "results" / "style" / "joint"  # of `efdm evaluate style --method efdm --method wct --method joint`
MEASURES = {"lpips": "content LPIPS ↓", "style_distance": "style distance ↓", "gram_distance": "Gram error ↓"}


def distances_table() -> str:
    found = {(row["layer"], row["candidate"]): row for row in read_record("joint-cpu.json")["distances"]}
    layers = sorted({layer for layer, _ in found})
    rows = []
    for name in dict.fromkeys(candidate for _, candidate in found):
        cells = [found[layer, name] for layer in layers]
        shares = [f"{row['share']:.2f} ({row['least']:.2f}-{row['most']:.2f})" for row in cells]
        rows.append([name, *shares, *("-" if name == "halves" else f"{row['gram_error']:.3f}" for row in cells)])
    return markdown(["match", *layers, *(f"Gram error, {layer}" for layer in layers)], rows)


def pictures_table() -> str:
    found = [group for group in groups(read_records(RUN)) if "model" in group.candidate]
    rows = []
    for group in found:
        names = (f"`{group.candidate[key]}`" for key in ("model", "method"))
        rows.append([*names, *(cell(group, measure) for measure in MEASURES)])
    pairs, side = len(found[0].records), found[0].records[0]["settings"]["size"]
    table = markdown(["model", "method", *MEASURES.values()], rows)
    return f"Means over {pairs} held-out pairs at {side} pixels ± standard errors:\n\n{table}"


TABLES = (
    Table(GUIDE, "joint table", "joint_report.py", distances_table),
    Table(GUIDE, "joint pictures table", "joint_report.py", pictures_table),
)


if __name__ == "__main__":
    main(TABLES, __doc__)
