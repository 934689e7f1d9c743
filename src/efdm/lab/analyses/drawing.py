"""How the figures and files of all analyses look."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from efdm.errors import requires

# Okabe and Ito's colours, which the colour-blind can tell apart, without yellow (too light for lines)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"  # a second sign, for those who see no colours and for more than seven domains
GRAY = "#666666"


def colour_of(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def marker_of(number: int) -> str:
    """Changes faster than once a round, so that two domains of one colour differ."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


def with_spaces(name: str) -> str:
    return name.replace("_", " ")


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches, without a window: matplotlib's own classes need no backend."""
    with requires("dg"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def save(figure: Any, path: Path) -> None:
    """As a PNG with a palette: enough for flat colours, and a third of the size."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format="png")
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def digits(values: Tensor, count: int = 5) -> Any:
    """A tensor as (lists of) numbers with so many significant digits; None for NaN, which JSON has not."""
    return _short(values.tolist(), count)


def _short(value: Any, count: int) -> Any:
    if isinstance(value, list):
        return [_short(v, count) for v in value]
    return None if math.isnan(value) else float(f"{value:.{count}g}")


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
