"""Contact sheets: pictures in rows and columns, with labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    cell: int = 256,
    gap: int | None = None,
    title: str = "",
    fit: str = "crop",
) -> Tensor:
    """Arrange pictures ``(3 or 1, h, w)`` in [0, 1], of any sizes, as one picture ``(3, H, W)`` of equal square cells.

    ``None`` leaves a cell empty. ``fit="crop"`` fills a cell with the centre of its picture; "letterbox" shows all of the
    picture. ``gap`` defaults to a sixteenth of a cell. Labels scale with the cell and are shortened if they are too long.

    >>> import torch
    >>> from efdm.data.sheets import sheet
    >>> sheet([[torch.rand(3, 40, 60), None]], cell=32, gap=2).shape
    torch.Size([3, 36, 70])
    """
    _check(rows, row_labels, column_labels, cell, fit)
    gap = max(1, cell // 16) if gap is None else gap
    columns = max(len(row) for row in rows)
    small, large = (ImageFont.load_default(max(least, round(cell * share))) for least, share in ((13, 0.066), (19, 0.11)))
    line = _height(small)
    longest = max((small.getlength(label) for label in row_labels), default=0.0)
    left = gap + (round(min(longest, cell)) + gap if row_labels else 0)
    top = gap + (round(1.9 * _height(large)) if title else 0) + (round(1.5 * line) if column_labels else 0)
    pitch = cell + gap
    width, height = left + columns * pitch, top + len(rows) * pitch
    image = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(image)
    if title:
        draw.text((left, gap), _shorten(title, large, width - left - gap), font=large, fill=INK)
    for j, label in enumerate(column_labels):
        place = (left + j * pitch + cell / 2, top - 0.45 * line)
        draw.text(place, _shorten(label, small, cell), font=small, fill=FAINT, anchor="ms")
    for i, label in enumerate(row_labels):
        place = (left - gap, top + i * pitch + cell / 2)
        draw.text(place, _shorten(label, small, cell), font=small, fill=FAINT, anchor="rm")
    canvas = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            if picture is not None:
                y, x = top + i * pitch, left + j * pitch
                values = picture.detach().to("cpu", torch.float32).clamp(0, 1)
                canvas[:, y : y + cell, x : x + cell] = FITS[fit](values, cell)
    return canvas


def _crop(picture: Tensor, cell: int) -> Tensor:
    return resize(centre_crop(picture), (cell, cell))


def _letterbox(picture: Tensor, cell: int) -> Tensor:
    h, w = picture.shape[1:]
    scale = cell / max(h, w)
    inner = resize(picture, (max(1, round(h * scale)), max(1, round(w * scale))))
    top, left = (cell - inner.shape[1]) // 2, (cell - inner.shape[2]) // 2
    box = (torch.tensor(PAPER, dtype=inner.dtype) / 255)[:, None, None].repeat(1, cell, cell)
    box[:, top : top + inner.shape[1], left : left + inner.shape[2]] = inner
    return box


FITS: Mapping[str, Callable[[Tensor, int], Tensor]] = {"crop": _crop, "letterbox": _letterbox}


def _height(font: Font) -> int:
    return round(font.getbbox("Ag")[3])


def _shorten(label: str, font: Font, room: float) -> str:
    """Return the label, cut and ended with dots if it is wider than ``room``."""
    if font.getlength(label) <= room:
        return label
    while label and font.getlength(label + "...") > room:
        label = label[:-1]
    return label.rstrip() + "..."


def _check(
    rows: Sequence[Sequence[Tensor | None]], row_labels: Sequence[str], column_labels: Sequence[str], cell: int, fit: str
) -> None:
    columns = max(map(len, rows), default=0)
    if columns == 0:
        raise ValueError("rows is empty; expected at least one picture")
    for what, labels, count in (("row", row_labels, len(rows)), ("column", column_labels, columns)):
        if labels and len(labels) != count:
            raise ValueError(f"got {len(labels)} {what}_labels for {count} {what}s; give one for each, or none")
    if cell < 1:
        raise ValueError(f"cell must be at least 1 pixel, got {cell}")
    if fit not in FITS:
        raise ValueError(f"fit must be one of {', '.join(FITS)}, got {fit!r}")
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            if picture is not None and (picture.ndim != 3 or picture.shape[0] not in (1, 3)):
                raise ValueError(
                    f"the picture in row {i}, column {j} has shape {tuple(picture.shape)}, expected (3, h, w) or (1, h, w)"
                )
