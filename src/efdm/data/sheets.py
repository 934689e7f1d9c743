"""Contact sheets: pictures in rows and columns, with labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from efdm.data.images import centre_crop, resize

PAPER = (252, 251, 248)
INK = (38, 36, 34)
FAINT = (120, 116, 110)
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def sheet(
    rows: Sequence[Sequence[Tensor | None]],
    *,
    row_labels: Sequence[str] = (),
    column_labels: Sequence[str] = (),
    cell: int | tuple[int, int] = 256,
    gap: int | None = None,
    title: str = "",
) -> Tensor:
    """Arrange pictures ``(3 or 1, h, w)`` in [0, 1], of any sizes, as one picture ``(3, H, W)`` of equal cells.

    ``cell`` is the side of square cells or their (height, width). A cell shows the centre of its picture, and ``None``
    leaves it empty. ``gap`` defaults to a sixteenth of a cell. Labels scale with the cell and are shortened if they are too
    long.

    >>> import torch
    >>> from efdm.data.sheets import sheet
    >>> sheet([[torch.rand(3, 40, 60), None]], cell=32, gap=2).shape
    torch.Size([3, 36, 70])
    """
    columns = max(map(len, rows), default=0)
    if columns == 0:
        raise ValueError("rows is empty; expected at least one picture")
    for what, labels, count in (("row", row_labels, len(rows)), ("column", column_labels, columns)):
        if labels and len(labels) != count:
            raise ValueError(f"got {len(labels)} {what}_labels for {count} {what}s; pass one for each, or none")
    high, wide = (cell, cell) if isinstance(cell, int) else cell
    unit = max(high, wide)
    gap = max(1, unit // 16) if gap is None else gap
    small, large = (ImageFont.load_default(max(least, round(unit * share))) for least, share in ((13, 0.066), (19, 0.11)))
    line = _height(small)
    longest = max((small.getlength(label) for label in row_labels), default=0.0)
    left = gap + (round(min(longest, unit)) + gap if row_labels else 0)
    top = gap + (round(1.9 * _height(large)) if title else 0) + (round(1.5 * line) if column_labels else 0)
    down, right = high + gap, wide + gap
    width, height = left + columns * right, top + len(rows) * down
    image = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(image)
    if title:
        draw.text((left, gap), _shorten(title, large, width - left - gap), font=large, fill=INK)
    for j, label in enumerate(column_labels):
        place = (left + j * right + wide / 2, top - 0.45 * line)
        draw.text(place, _shorten(label, small, wide), font=small, fill=FAINT, anchor="ms")
    for i, label in enumerate(row_labels):
        place = (left - gap, top + i * down + high / 2)
        draw.text(place, _shorten(label, small, unit), font=small, fill=FAINT, anchor="rm")
    canvas = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            if picture is not None:
                y, x = top + i * down, left + j * right
                shown = centre_crop(picture.detach().to("cpu", torch.float32).clamp(0, 1), high, wide)
                canvas[:, y : y + high, x : x + wide] = resize(shown, (high, wide))
    return canvas


def _height(font: Font) -> int:
    return round(font.getbbox("Ag")[3])


def _shorten(label: str, font: Font, room: float) -> str:
    """Return the label, truncated with dots if it is wider than ``room``."""
    if font.getlength(label) <= room:
        return label
    while label and font.getlength(label + "...") > room:
        label = label[:-1]
    return label.rstrip() + "..."
