"""``efdm reid search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from efdm.apps.cli.errors import report_errors
from efdm.apps.cli.options import Device, option, resolve_device
from efdm.apps.cli.printing import print_text
from efdm.apps.cli.progress import show_progress
from efdm.apps.cli.recognition_options import MODEL_HELP
from efdm.data import WRITABLE
from efdm.errors import SettingError
from efdm.reid import load_embedder
from efdm.reid.search import SearchResult, search_files
from efdm.text import first_few, plural

PRINTED = 10  # queries


@report_errors("interrupted; nothing was written")
def search(
    query: Annotated[Path, typer.Argument(help="A picture, or a folder or zip of pictures; it may be part of GALLERY.")],
    gallery: Annotated[Path, typer.Argument(help="The folder or zip to search.")],
    model: Annotated[Path, option(MODEL_HELP)],
    out: Annotated[Path, option("Picture file for the sheet, such as sheet.png.", "--out", "-o")],
    top: Annotated[int, option("Pictures per query.", min=1)] = 10,
    rows: Annotated[int, option("Queries on the sheet, evenly spaced if there are more.", min=1)] = 8,
    layout: Annotated[str, option("Layout of the file names, see `efdm reid list`.")] = "auto",
    device: Device = None,
) -> None:
    """Search pictures for people and draw the ranked results.

    Where file names give the person, frames are green around pictures of the query's person and red around others, and
    pictures of that person from the query's camera are excluded.
    """
    if out.suffix.lower() not in WRITABLE:
        raise SettingError(f"{out} must end in one of {', '.join(WRITABLE)}", "out")
    embedder = load_embedder(model, resolve_device(device))
    with show_progress() as progress:
        result = search_files(embedder.model, query, gallery, size=embedder.size, layout=layout, top=top, progress=progress)
    result.sheet(rows=rows).save(out)
    _print_nearest(result)
    print_text(f"\nsheet: {out}")


def _print_nearest(result: SearchResult) -> None:
    """Print the nearest picture for the first queries, the number of others, and skipped pictures."""
    for row, index in enumerate(result.queries[:PRINTED].tolist()):
        hits = result.hits(row)
        nearest = f"{hits[0].name}, distance {hits[0].distance:.3f}, {hits[0].match} person" if hits else "no other picture"
        print_text(f"{result.query.names[index]}: {nearest}")
    if (more := len(result.queries) - PRINTED) > 0:
        print_text(f"and {more} more")
    if skipped := dict.fromkeys((*result.query.skipped, *result.gallery.skipped)):
        print_text(f"skipped {plural(len(skipped), 'picture')} ({first_few([reason for _, reason in skipped])})")
