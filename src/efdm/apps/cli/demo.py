"""``efdm demo``: what it looks like, from pictures that come with the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from efdm.apps.devices import pick_device
from efdm.apps.networks import pick_model, with_option
from efdm.apps.tell import tell
from efdm.data import PictureError, read_picture, resize_short_side, write_picture
from efdm.data.embedded import photos, read_style
from efdm.data.sheets import sheet
from efdm.models import NETWORKS
from efdm.models.weights import MissingWeights
from efdm.style.look import Look
from efdm.style.stylizer import Stylizer

console = Console()
app = typer.Typer(add_completion=False)

PHOTOS = ("astronaut", "coffee", "cat", "rocket")
PAINTINGS = ("starry", "wave", "fauve", "mosaic", "lilies", "cubist", "watercolour", "glass")
SWEEPS = (("hopper", "fauve"), ("rocket", "starry"), ("cat", "mosaic"))
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
CORNERS = ("starry", "fauve", "wave", "lilies")  # top left, top right, bottom left, bottom right
CORNER_PHOTO = "coffee"
STEPS = 5  # of the grid between four styles

Row = list[Tensor | None]


class Workshop:
    """Everything the sheets need, each made once."""

    def __init__(self, stylizer: Stylizer, side: int) -> None:
        self.stylizer, self.side = stylizer, side
        self.photo, self.painting, self.look = cache(self._photo), cache(self._painting), cache(self._look)

    def _photo(self, name: str) -> Tensor:
        """The middle square."""
        picture = resize_short_side(read_picture(photos()[name]).rgb, self.side)
        top, left = ((n - self.side) // 2 for n in picture.shape[1:])
        return picture[:, top : top + self.side, left : left + self.side]

    def _painting(self, name: str) -> Tensor:
        return read_style(name, self.side)

    def _look(self, *names: str) -> Look:
        return self.stylizer.prepare([self.painting(name) for name in names])


def contact_sheet(shop: Workshop) -> Iterator[Tensor]:
    """Every photo in every style. Yields each picture when it is done, and the sheet at the end: so do all of these."""
    rows: list[Row] = [[None, *(shop.painting(name) for name in PAINTINGS)]]
    for name in PHOTOS:
        row: Row = [shop.photo(name)]
        for style in PAINTINGS:
            row.append(shop.stylizer.stylize(shop.photo(name), shop.look(style)))
            yield row[-1]  # type: ignore[misc]
        rows.append(row)
    yield sheet(rows, column_labels=["", *PAINTINGS], cell=shop.side, title="Photos in painted styles")


def strength_sweep(shop: Workshop) -> Iterator[Tensor]:
    """From the content to the style."""
    rows: list[Row] = []
    for name, style in SWEEPS:
        row: Row = [shop.photo(name)]
        for strength in STRENGTHS:
            row.append(shop.stylizer.stylize(shop.photo(name), shop.look(style), strength=strength))
            yield row[-1]  # type: ignore[misc]
        rows.append([*row, shop.painting(style)])
    labels = ["content", *(f"strength {s:g}" for s in STRENGTHS), "style"]
    yield sheet(rows, column_labels=labels, cell=shop.side, title="From content to style")


def four_styles(shop: Workshop) -> Iterator[Tensor]:
    """Four styles in the corners, mixtures between them."""
    content, corners = shop.photo(CORNER_PHOTO), [shop.painting(name) for name in CORNERS]
    look = shop.look(*CORNERS)
    rows: list[Row] = []
    for i in range(STEPS):
        down = i / (STEPS - 1)
        row: Row = []
        for j in range(STEPS):
            across = j / (STEPS - 1)
            weights = ((1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across)
            row.append(shop.stylizer.stylize(content, look.mixed(weights)))
            yield row[-1]  # type: ignore[misc]
        rows.append([None, *row, None])
    for k, corner in enumerate(corners):
        rows[(k // 2) * (STEPS - 1)][(k % 2) * (STEPS + 1)] = corner
    rows[STEPS // 2][0] = content
    yield sheet(rows, cell=shop.side, title="Between four styles")


class Page(NamedTuple):
    """One sheet: how it is made, and of how many pictures."""

    make: Callable[[Workshop], Iterator[Tensor]]
    pictures: int


SHEETS: dict[str, Page] = {
    "contact-sheet.png": Page(contact_sheet, len(PHOTOS) * len(PAINTINGS)),
    "strength-sweep.png": Page(strength_sweep, len(SWEEPS) * len(STRENGTHS)),
    "four-styles.png": Page(four_styles, STEPS**2),
}


def make_sheets(stylizer: Stylizer, out: Path, side: int, told: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Write all sheets; ``told`` hears the sheet's name after every picture."""
    shop = Workshop(stylizer, side)
    for name, page in SHEETS.items():
        last = None
        for made in page.make(shop):
            last = made
            told(name)
        assert last is not None
        write_picture(out / name, last)
    return [out / name for name in SHEETS]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the sheets.")],
    model: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}. Default: what --weights says, or small.")] = "",
    weights: Annotated[Path | None, typer.Option(help="A network of your own, from `efdm train style`.")] = None,
    vgg: Annotated[Path | None, typer.Option(help="The VGG's file, for the models that need it.")] = None,
    side: Annotated[int, typer.Option(min=32, help="Side of each picture.")] = 256,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = "",
) -> None:
    """See what it does: a contact sheet, a sweep of strengths, and mixtures of four styles."""
    try:
        stylizer = Stylizer.from_pretrained(pick_model(model, weights), pick_device(device), weights, vgg)
        with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console) as bar:
            task = bar.add_task("painting styles", total=sum(page.pictures + 1 for page in SHEETS.values()))
            made = make_sheets(stylizer, out, side, lambda name: bar.update(task, description=name, advance=1))
    except (ValueError, PictureError, MissingWeights) as error:
        tell(console, with_option(error))
        raise typer.Exit(2) from error
    for path in made:
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)
