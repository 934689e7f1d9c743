"""``efdm dg table`` and ``efdm reid table``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from efdm import lab
from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import option
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.recognition_printing import print_tables
from efdm.data.images import write_bytes
from efdm.errors import RunFolderError, SettingError
from efdm.lab.selection import STDS
from efdm.ops.choices import check_choice

FORMATS = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".txt": "text", "": "text"}  # by file extension


@report_errors("interrupted; nothing was written")
def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders of `run`; several of one recipe are merged.")],
    form: Annotated[str, option(f"One of {', '.join(lab.FORMATS)}. Default: by the extension of --out.", "--format")] = "",
    out: Annotated[Path | None, option("Write a .md, .csv, .tex or .txt file instead of printing.", "--out", "-o")] = None,
    selection: Annotated[str, option("A rule of the recipe, such as oracle. Default: all; CSV: the first.")] = "",
    std: Annotated[str, option(f"Deviation after the ±: {', '.join(STDS)}. Default: the recipe's.")] = "",
) -> None:
    """Print or write the tables of a run, finished or not, from its records."""
    form = _format(form, out)
    try:
        study = lab.read_study(*runs)
    except RunFolderError as error:  # about a folder in ``runs``, not --out
        raise ValueError(str(error)) from error
    if selection:
        check_choice("selection", selection, study.recipe.selections)
        study = replace(study, recipe=replace(study.recipe, selections=(selection,)))
    if std:
        check_choice("std", std, STDS)
    # a CSV file holds one table
    tables = [lab.accuracy_table(study, study.recipe.selections[0], std=std)] if form == "csv" else lab.tables(study, std)
    if not form:
        print_tables(tables)
        return
    text = "\n".join(lab.render(grid, form) for grid in tables)
    if out is None:
        print_text(text, end="")
    else:
        write_bytes(out, text.encode())
        print_text(out)


def _format(form: str, out: Path | None) -> str:
    """Return the format given by name or by file extension, or "" if neither is given."""
    if form:
        form = FORMATS.get(f".{form}", form)
        check_choice("format", form, lab.FORMATS)
        return form
    if out is None:
        return ""
    if out.suffix.lower() not in FORMATS:
        raise SettingError(f"{out} must end in one of {', '.join(filter(None, FORMATS))}", ("out", "format"))
    return FORMATS[out.suffix.lower()]
