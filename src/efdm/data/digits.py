"""Digits in four styles: a small set of domains that needs no download.

The styles differ in polarity, contrast, colour, texture and stroke filling, on which classifiers tend to rely, and preserve
the shape of a digit. ``tools/paint_digits.py`` drew them; ``pictures/CREDITS.md`` names the source of the handwriting.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from PIL import Image

from efdm.data.domains import DomainSet, labelled
from efdm.data.embedded import FOLDER
from efdm.data.images import resize
from efdm.data.layouts import Item

CLASSES = [str(digit) for digit in range(10)]
STYLES = ("ink", "neon", "mosaic", "outline")
SIDE = 32  # of the stored pictures
VAL_EVERY = 10  # the second, twelfth, ... digit of each class and domain is in "val"


def load_digits_domains(size: int = SIDE, per_domain: int | None = None) -> DomainSet:
    """Return about 450 digits for each of `STYLES`, or the first ``per_domain`` of them, resized to ``size`` pixels.

    Each scan is in one domain only. The 13 writers are not named, so a writer may occur in several domains.
    """
    names = (FOLDER / "digits.txt").read_text().split()
    parts = [[at for at, name in enumerate(names) if name.startswith(style)] for style in STYLES]
    most = min(map(len, parts))
    if per_domain is not None and not 1 <= per_domain <= most:
        raise ValueError(f"per_domain must be from 1 to {most}, got {per_domain}")
    chosen = [at for part in parts for at in part[:per_domain]]
    with Image.open(FOLDER / "digits.webp") as sheet:
        tiles = torch.from_numpy(np.array(sheet)).unfold(0, SIDE, SIDE).unfold(1, SIDE, SIDE).flatten(0, 1)
    items, seen = list[Item](), Counter[str]()
    for name in (names[at] for at in chosen):
        style, label, _ = name.split("/")
        seen[style + label] += 1
        splits = frozenset({"val" if seen[style + label] % VAL_EVERY == 2 else "train", "test"})
        items.append(Item(name, style, label, splits))
    return labelled(resize(tiles[chosen], (size, size)), items, CLASSES, STYLES)
