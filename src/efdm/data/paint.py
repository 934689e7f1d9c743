"""Paintings made by code, to have styles at hand that belong to nobody: a table, and a door."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from efdm.data import oils, papers, patterns, pieces, prints
from efdm.data.brush import Painter

STYLES: Mapping[str, Painter] = {
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

SMALLEST = 16  # below, not even the largest brush is a pixel wide


def paint(name: str, size: int = 512, seed: int = 0) -> Tensor:
    """A painting ``(3, size, size)``, 0 to 1: the same for the same name, size and seed. A second or two at 512.

    Another seed is another picture by the same hand; another size is much the same picture, larger or smaller.

    >>> from efdm.data.paint import paint
    >>> paint("glass", size=64).shape
    torch.Size([3, 64, 64])
    """
    if name not in STYLES:
        raise ValueError(f"there is no style {name!r}; choose one of {', '.join(STYLES)}")
    if size < SMALLEST:
        raise ValueError(f"size={size} is too small to paint; take {SMALLEST} or more and scale the picture down")
    # the name belongs to the seed, so that two styles of one seed share no randomness
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return torch.from_numpy(STYLES[name](size, generator))
