"""Painters of the style pictures in ``src/efdm/data/pictures``. ``python -m tools.paint_styles`` makes the files again."""

import zlib
from collections.abc import Mapping

import numpy as np

from . import oils, papers, patterns, pieces, prints
from .brush import Painter
from .fields import Array

PAINTERS: Mapping[str, Painter] = {
    "starry": oils.starry,
    "wave": prints.wave,
    "fauve": oils.fauve,
    "mosaic": pieces.mosaic,
    "lilies": oils.lilies,
    "cubist": pieces.cubist,
    "watercolour": papers.watercolour,
    "woodcut": prints.woodcut,
    "autumn": oils.autumn,
    "glass": pieces.glass,
    "pointillism": oils.pointillism,
    "chalk": papers.chalk,
    "bauhaus": patterns.bauhaus,
    "batik": patterns.batik,
}


def paint(name: str, size: int = 512, seed: int = 0) -> Array:
    """Return a painting ``(3, size, size)`` in [0, 1], determined by the arguments alone.

    A different seed gives a different picture in the same style; a different size gives nearly the same picture.
    """
    # the name is part of the seed, so styles do not share random numbers
    return PAINTERS[name](size, np.random.default_rng([seed, zlib.crc32(name.encode())]))
