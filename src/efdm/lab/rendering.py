"""Tables as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping

from efdm.lab.report import MISSING, Table
from efdm.ops.choices import check_choice
from efdm.text import markdown_table


def as_text(table: Table) -> str:
    grid = [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]).rstrip() for r in grid]
    return "\n".join([table.title, "", *([*lines, ""] if table.rows else []), *table.caption]) + "\n"


def as_markdown(table: Table) -> str:
    cells = [markdown_table(table.head, table.rows), ""] if table.rows else []
    return "\n".join([f"### {table.title}", "", *cells, " ".join(table.caption)]) + "\n"


def as_csv(table: Table) -> str:
    """Return the cells without title and caption. Missing values are empty, so that columns parse as numbers."""
    bare = [["" if cell == MISSING else cell for cell in row] for row in (table.head, *table.rows)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table.csv or bare)
    return out.getvalue()


# the LaTeX special characters that occur in tables
ESCAPED = str.maketrans({**{c: f"\\{c}" for c in "&%$#_{}"}, "±": r"$\pm$", "→": r"$\to$", "<": "$<$", ">": "$>$"})


def as_latex(table: Table) -> str:
    """Return a tabular that needs no package; title and caption precede it as comments."""
    head, *rows = (" & ".join(cell.translate(ESCAPED) for cell in row) + r" \\" for row in (table.head, *table.rows))
    body = [rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}", head, r"\hline", *rows, r"\end{tabular}"]
    return "\n".join([*(f"% {line}" for line in (table.title, *table.caption)), *(body if table.rows else [])]) + "\n"


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "text": as_text, "markdown": as_markdown, "latex": as_latex, "csv": as_csv,
}  # fmt: skip


def render(table: Table, form: str = "text") -> str:
    """Return a table in one of `FORMATS`."""
    check_choice("form", form, FORMATS)
    return FORMATS[form](table)
