"""Contact sheets of the pictures in the package: styles, strengths and mixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from torch import Tensor

from efdm.data import read_picture, resize_short_side, write_picture
from efdm.data.embedded import photos, read_style
from efdm.data.images import centre_crop
from efdm.data.sheets import sheet
from efdm.progress import Progress, Report, ignore
from efdm.style.look import Look, corner_weights
from efdm.style.plan import make_folder
from efdm.style.stylizer import Stylizer

PHOTOS = ("astronaut", "coffee", "cat", "rocket")
PAINTINGS = ("starry", "wave", "fauve", "mosaic", "lilies", "cubist", "watercolour", "glass")
SWEEPS = (("hopper", "fauve"), ("rocket", "starry"), ("cat", "mosaic"))
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
CORNERS = ("starry", "fauve", "wave", "lilies")  # top left, top right, bottom left, bottom right
CORNER_PHOTO = "coffee"
STEPS = 5  # side of the grid of mixtures of four styles
PICTURES = len(PHOTOS) * len(PAINTINGS) + len(SWEEPS) * len(STRENGTHS) + STEPS**2

Row = list[Tensor | None]


class Studio:
    """Caches square photos, paintings and looks of one size, and reports the progress of stylizing."""

    def __init__(self, stylizer: Stylizer, side: int, progress: Report = ignore) -> None:
        self.stylizer, self.side, self._progress, self._done = stylizer, side, progress, 0
        self.painting = cache(lambda name: read_style(name, side))
        self.photo = cache(lambda name: centre_crop(resize_short_side(read_picture(photos()[name]).rgb, side)))
        self.look = cache(lambda *names: stylizer.prepare([self.painting(name) for name in names]))

    def stylize(self, photo: str, look: Look, strength: float = 1.0) -> Tensor:
        picture = self.stylizer.stylize(self.photo(photo), look, strength=strength)
        self._done += 1
        self._progress(Progress("stylizing", self._done, PICTURES))
        return picture


def contact_sheet(studio: Studio) -> Tensor:
    """Return a sheet of every photo in every style."""
    rows: list[Row] = [[None, *(studio.painting(name) for name in PAINTINGS)]]
    rows += [[studio.photo(name), *(studio.stylize(name, studio.look(style)) for style in PAINTINGS)] for name in PHOTOS]
    return sheet(rows, column_labels=["", *PAINTINGS], cell=studio.side, title="Photos in painted styles")


def strength_sweep(studio: Studio) -> Tensor:
    """Return a sheet with increasing strength from left to right."""
    rows: list[Row] = [
        [studio.photo(name), *(studio.stylize(name, studio.look(style), s) for s in STRENGTHS), studio.painting(style)]
        for name, style in SWEEPS
    ]
    labels = ["content", *(f"strength {s:g}" for s in STRENGTHS), "style"]
    return sheet(rows, column_labels=labels, cell=studio.side, title="From content to style")


def four_styles(studio: Studio) -> Tensor:
    """Return a sheet with four styles in the corners and their mixtures between them."""
    look = studio.look(*CORNERS)
    shares = [i / (STEPS - 1) for i in range(STEPS)]
    rows: list[Row] = []
    for down in shares:
        weights = [corner_weights(x, down) for x in shares]
        rows.append([None, *(studio.stylize(CORNER_PHOTO, look.mixed(w)) for w in weights), None])
    for k, name in enumerate(CORNERS):
        rows[(k // 2) * (STEPS - 1)][(k % 2) * (STEPS + 1)] = studio.painting(name)
    rows[STEPS // 2][0] = studio.photo(CORNER_PHOTO)
    return sheet(rows, cell=studio.side, title="Between four styles")


SHEETS: Mapping[str, Callable[[Studio], Tensor]] = {
    "contact-sheet.png": contact_sheet, "strength-sweep.png": strength_sweep, "four-styles.png": four_styles,
}  # fmt: skip


def write_sheets(stylizer: Stylizer, out: Path, *, side: int = 256, progress: Report = ignore) -> list[Path]:
    """Write all sheets into the folder ``out`` and return their paths."""
    make_folder(out)  # before the work
    studio = Studio(stylizer, side, progress)
    for name, make in SHEETS.items():
        write_picture(out / name, make(studio))
    return [out / name for name in SHEETS]
