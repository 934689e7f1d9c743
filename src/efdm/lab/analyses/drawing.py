"""Style of the figures, and helpers for the files of all analyses."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from efdm.errors import requires

# the colour-blind safe palette of Okabe and Ito without yellow, which is too light for lines
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"  # a second cue besides colour, which is not unique for more than seven domains
GRAY = "#666666"


def colour_of(number: int) -> str:
    """Return the colour of a domain or method by its number."""
    return COLOURS[number % len(COLOURS)]


def marker_of(number: int) -> str:
    """Return a marker; two domains with the same colour have different markers."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def with_spaces(name: str) -> str:
    return name.replace("_", " ")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure with a size in inches; it needs no backend and no window."""
    with requires("dg"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any) -> None:
    """Remove the top and right spines and use small tick labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG with a palette, a third of the size of an RGB file."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format="png")
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def round_digits(values: Any, count: int = 5) -> Any:
    """Return a tensor as nested lists, rounded to ``count`` significant digits, with None for NaN, as JSON has no NaN."""
    values = values.tolist() if isinstance(values, Tensor) else values
    if isinstance(values, list):
        return [round_digits(value, count) for value in values]
    return None if math.isnan(values) else float(f"{values:.{count}g}")


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
