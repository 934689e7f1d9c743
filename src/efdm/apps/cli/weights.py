"""``efdm weights``: what there is, where it is, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from efdm.apps.networks import with_option
from efdm.apps.tell import tell
from efdm.apps.wishes import refuse_inputs
from efdm.data import ImageSet
from efdm.models import mean_activations, normalise
from efdm.models.vgg import CONVS_PER_BLOCK
from efdm.models.weights import WEIGHTS, MissingWeights, find, fits_table, load_encoder, save_encoder

app = typer.Typer(add_completion=False, help="Weights: what there is, where it is, whose it is.")
console = Console()

DEEPEST = "relu5_1"  # the deepest tap that a style loss uses
STEP = 8  # photographs at a time


@app.callback(invoke_without_command=True)
def table(context: typer.Context) -> None:
    """List every weight with its licence and where it was found."""
    if context.invoked_subcommand:
        return
    shown = Table("name", "what it is", "licence", "here", title="Weights")
    for name, weight in WEIGHTS.items():
        try:
            path = find(name)
            changed = "" if fits_table(name, path) else " (changed!)"
            here = ("in the package" if weight.place == "package" else str(path)) + changed
        except MissingWeights:
            here = "no"
        shown.add_row(name, weight.about, weight.licence, here)
    console.print(shown)
    console.print("A weight that is not here: `efdm weights where NAME` says which file to put where.", soft_wrap=True)


@app.command()
def where(name: Annotated[str, typer.Argument(help=f"One of {', '.join(WEIGHTS)}.")]) -> None:
    """Print the file of a weight, or what to do to have it."""
    try:
        console.print(str(find(name)), soft_wrap=True)
    except (MissingWeights, ValueError) as error:
        tell(console, with_option(error, {}))
        raise typer.Exit(2) from error


@app.command(name="normalise")
def normalise_encoder(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(CONVS_PER_BLOCK)}.")],
    content: Annotated[str, typer.Option(help="Photographs to measure on: a folder or a zip; some hundred suffice.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The safetensors file to write.")],
    vgg: Annotated[str, typer.Option(help="File with the ImageNet weights; default: looked up.")] = "",
    pictures: Annotated[int, typer.Option(min=1, help="At most this many photographs.")] = 300,
) -> None:
    """Rescale a VGG so that every channel's mean activation is 1, and write it. Decoders are trained for such encoders."""
    try:
        if name not in CONVS_PER_BLOCK:
            raise ValueError(f"{name!r} is not one of {', '.join(CONVS_PER_BLOCK)}")
        given = find(name, vgg or None)
        if out.is_dir():
            raise ValueError(
                f"{out} is a folder; choose a file for the output, such as {out / given.stem}-normalised.safetensors"
            )
        refuse_inputs([out], [given, Path(content)])
        encoder = load_encoder(name, DEEPEST, path=vgg or None)
        photos = ImageSet.load(content)
        normalise(encoder, mean_activations(encoder, _crops(photos, pictures)))
        save_encoder(encoder, out)
    except (ValueError, OSError) as error:  # pictures, weights, folders
        tell(console, with_option(error))
        raise typer.Exit(2) from error
    console.print(f"wrote {out}; use it with --vgg {out}", soft_wrap=True)


def _crops(photos: ImageSet, count: int) -> Iterator[Tensor]:
    """Random parts of photographs from everywhere in the set."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.linspace(0, len(photos) - 1, min(count, len(photos))).long()
    for part in track(chosen.split(STEP), description="measuring", console=console):
        yield photos.crops(part, min(256, int(photos.sizes.min())), generator).float() / 255
