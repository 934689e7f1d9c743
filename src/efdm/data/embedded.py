"""Pictures included in the package, for examples. ``pictures/CREDITS.md`` names their authors and licences."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from efdm.data.images import read_picture, resize
from efdm.ops.choices import check_choice

FOLDER = Path(__file__).parent / "pictures"
PHOTOS = ("astronaut", "cat", "coffee", "rocket", "hopper", "camera")
STYLES = (
    "starry", "wave", "fauve", "mosaic", "lilies", "cubist", "watercolour", "woodcut", "autumn", "glass", "pointillism",
    "chalk", "bauhaus", "batik",
)  # fmt: skip


def photos() -> dict[str, Path]:
    """Return the paths of the photos by name."""
    return {name: FOLDER / f"{name}.webp" for name in PHOTOS}


def styles() -> dict[str, Path]:
    """Return the paths of the painted styles by name. ``tools/paint_styles`` creates the files."""
    return {name: FOLDER / f"{name}.webp" for name in STYLES}


def read_style(name: str, size: int = 512) -> Tensor:
    """Return a painted style ``(3, size, size)`` in [0, 1]."""
    check_choice("style", name, STYLES)
    return resize(read_picture(styles()[name]).rgb, (size, size))
