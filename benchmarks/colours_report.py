"""Render the table of colour matching in docs/guide/match-colours.md from the committed records.

python benchmarks/colours_report.py            print the table
python benchmarks/colours_report.py --readme   update it in the document
"""

from __future__ import annotations

from documents import ROOT, Table, main, markdown
from records import read_record


def colours_table() -> str:
    cpu, gpu = (read_record(f"colours-{device}.json")["rows"] for device in ("cpu", "cuda"))
    columns = [{row["name"]: f"{row['seconds'] * 1000:.0f} ms" for row in rows if "seconds" in row} for rows in (cpu, gpu)]
    rows = [
        [row["name"], f"{row['channels']:.3f}", f"{row['joint']:.2f}", *(times.get(row["name"], "") for times in columns)]
        for row in cpu
    ]
    return markdown(["", "channels ↓", "joint ↓", "2 cores", "GPU"], rows)


TABLES = (Table(ROOT / "docs" / "guide" / "match-colours.md", "colours table", "colours_report.py", colours_table),)


if __name__ == "__main__":
    main(TABLES, __doc__)
