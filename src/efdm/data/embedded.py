"""Photos that come with the package, all in the public domain or CC0: contents for a first try."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

_KEPT = ExitStack()  # a package in a zip file unpacks its pictures; they stay until the program ends
atexit.register(_KEPT.close)


@dataclass(frozen=True)
class Photo:
    """One embedded picture, and to whom we owe it."""

    file: str
    what: str
    author: str
    source: str
    licence: str


PHOTOS: Mapping[str, Photo] = {
    "astronaut": Photo(
        "astronaut.webp",
        "Eileen Collins, astronaut, before a model of the Space Shuttle",
        "NASA",
        "NASA Great Images, https://flic.kr/p/r9qvLn",
        "public domain",
    ),
    "cat": Photo(
        "cat.webp",
        "Chelsea the cat",
        "Stefan van der Walt",
        "scikit-image, data/chelsea.png",
        "CC0",
    ),
    "coffee": Photo(
        "coffee.webp",
        "A cup of coffee on a wooden table, at Pikolo Espresso Bar",
        "Rachel Michetti",
        "scikit-image, data/coffee.png",
        "CC0",
    ),
    "rocket": Photo(
        "rocket.webp",
        "Falcon 9 lifts off with DSCOVR, Cape Canaveral, 2015",
        "SpaceX",
        "https://www.flickr.com/photos/spacexphotos/16511594820",
        "public domain",
    ),
    "hopper": Photo(
        "hopper.webp",
        "Commodore Grace M. Hopper, official portrait of 20 January 1984 (upper part)",
        "U.S. Navy",
        "matplotlib, sample_data/grace_hopper.jpg",
        "public domain",
    ),
    "camera": Photo(
        "camera.webp",
        "A photographer and his camera, in grey",
        "Lav Varshney",
        "scikit-image, data/camera.png",
        "CC0",
    ),
}


def photos() -> dict[str, Path]:
    """The embedded photos by name: paths that any image reader opens.

    >>> from efdm.data.embedded import photos
    >>> sorted(photos())
    ['astronaut', 'camera', 'cat', 'coffee', 'hopper', 'rocket']
    """
    return {name: photo(name) for name in PHOTOS}


@cache
def photo(name: str) -> Path:
    """The path of one embedded photo."""
    if name not in PHOTOS:
        raise ValueError(f"there is no photo {name!r}; choose one of {', '.join(PHOTOS)}")
    return _KEPT.enter_context(as_file(files("efdm.data") / "pictures" / PHOTOS[name].file))


def credits_table() -> str:
    """The table of `PHOTOS` in Markdown, as it stands in ``pictures/CREDITS.md``."""
    rows = [f"| `{p.file}` | {p.what} | {p.author} | {p.source} | {p.licence} |" for p in PHOTOS.values()]
    return "\n".join(["| file | what | author | source | licence |", "|---|---|---|---|---|", *rows, ""])
