"""Pictures that come with the package: photos (public domain or CC0) and painted styles, for a first try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from efdm.data.images import read_picture, resize

FOLDER = Path(__file__).parent / "pictures"
STYLE_SIZE = 512  # height and width of the style pictures


@dataclass(frozen=True)
class Photo:
    """Title, author, source and licence of a photo."""

    title: str
    author: str
    source: str
    licence: str


PHOTOS: Mapping[str, Photo] = {
    "astronaut": Photo(
        "Eileen Collins, astronaut, before a model of the Space Shuttle",
        "NASA",
        "NASA Great Images, https://flic.kr/p/r9qvLn",
        "public domain",
    ),
    "cat": Photo("Chelsea the cat", "Stefan van der Walt", "scikit-image, data/chelsea.png", "CC0"),
    "coffee": Photo(
        "A cup of coffee on a wooden table, at Pikolo Espresso Bar",
        "Rachel Michetti",
        "scikit-image, data/coffee.png",
        "CC0",
    ),
    "rocket": Photo(
        "Falcon 9 lifts off with DSCOVR, Cape Canaveral, 2015",
        "SpaceX",
        "https://www.flickr.com/photos/spacexphotos/16511594820",
        "public domain",
    ),
    "hopper": Photo(
        "Commodore Grace M. Hopper, official portrait of 20 January 1984 (upper part)",
        "U.S. Navy",
        "matplotlib, sample_data/grace_hopper.jpg",
        "public domain",
    ),
    "camera": Photo("A photographer and his camera, in grey", "Lav Varshney", "scikit-image, data/camera.png", "CC0"),
}
STYLES: Mapping[str, str] = {
    "starry": "A night sky in swirls of blue and yellow, in oil",
    "wave": "A great wave, as a colour woodblock print",
    "fauve": "Trees by the water in bold, unmixed colours, in oil",
    "mosaic": "A mosaic of small stones",
    "lilies": "A pond with water lilies, in oil",
    "cubist": "Cubist facets",
    "watercolour": "A watercolour",
    "woodcut": "A landscape in black and white, as a woodcut",
    "autumn": "Birches by a pond in autumn, with a palette knife",
    "glass": "A stained-glass window",
    "pointillism": "A landscape in dots of pure colour",
    "chalk": "Chalk and charcoal on toned paper",
    "bauhaus": "A poster of circles, bars and triangles in primary colours",
    "batik": "A batik cloth with flowers",
}


def photos() -> dict[str, Path]:
    """Return the paths of the photos by name.

    >>> from efdm.data.embedded import photos
    >>> sorted(photos())
    ['astronaut', 'camera', 'cat', 'coffee', 'hopper', 'rocket']
    """
    return {name: FOLDER / f"{name}.webp" for name in PHOTOS}


def styles() -> dict[str, Path]:
    """Return the paths of the painted styles by name. ``tools/paint_styles`` makes the files."""
    return {name: FOLDER / f"{name}.webp" for name in STYLES}


def read_style(name: str, size: int = STYLE_SIZE) -> Tensor:
    """Return a painted style ``(3, size, size)`` in [0, 1].

    >>> from efdm.data.embedded import read_style
    >>> read_style("glass", size=64).shape
    torch.Size([3, 64, 64])
    """
    if name not in STYLES:
        raise ValueError(f"unknown style {name!r}; expected one of {', '.join(STYLES)}")
    return resize(read_picture(styles()[name]).rgb, (size, size))


def credits_table() -> str:
    """Return the Markdown tables of ``pictures/CREDITS.md``."""
    rows = [f"| `{name}.webp` | {p.title} | {p.author} | {p.source} | {p.licence} |" for name, p in PHOTOS.items()]
    photo_lines = ["| file | title | author | source | licence |", "|---|---|---|---|---|", *rows]
    style_lines = ["| file | title |", "|---|---|", *(f"| `{name}.webp` | {title} |" for name, title in STYLES.items())]
    between = "The styles were painted by the programs in `tools/paint_styles` and come under the licence of the package."
    return "\n".join([*photo_lines, "", between, "", *style_lines, ""])
