"""The commands ``efdm weights list``, ``where`` and ``normalize``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from efdm.apps.cli.options import option
from efdm.apps.cli.printing import console, print_text
from efdm.apps.cli.progress import show_progress
from efdm.models.vgg import CONVS_PER_BLOCK
from efdm.models.weights import WEIGHTS, MissingWeights, find, fits_table
from efdm.style.encoder import write_normalized_encoder


def list_weights() -> None:
    """List all weights with their licences and files."""
    rows = Table("name", "description", "licence", "file", title="Weights")
    for name, weight in WEIGHTS.items():
        rows.add_row(name, weight.about, weight.licence, _location(name))
    console.print(rows)
    print_text("For a missing file, run `efdm weights where NAME`.")


def _location(name: str) -> str:
    try:
        path = find(name)
    except MissingWeights:
        return "missing"
    location = "in the package" if WEIGHTS[name].place == "package" else str(path)
    return location if fits_table(name, path) else f"{location} (wrong checksum)"


def where(name: Annotated[str, typer.Argument(help=f"One of {', '.join(WEIGHTS)}.")]) -> None:
    """Print the path of a weight file, or how to get it."""
    print_text(find(name))


def normalize(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(CONVS_PER_BLOCK)}.")],
    content: Annotated[str, option("Photographs: a folder or a zip. A few hundred are enough.")],
    out: Annotated[Path, option("The safetensors file to write.", "--out", "-o")],
    vgg: Annotated[str, option("File with the ImageNet weights. Default: the file found by name.")] = "",
    pictures: Annotated[int, option("Maximum number of photographs.", min=1)] = 300,
) -> None:
    """Rescale a VGG so that every channel has a mean activation of 1. Decoders are trained for such encoders."""
    with show_progress() as progress:
        write_normalized_encoder(name, content, out, vgg=Path(vgg) if vgg else None, limit=pictures, progress=progress)
    print_text(f"wrote {out}; use it with --vgg {out}")
