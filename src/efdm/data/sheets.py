"""Contact sheets: pictures in rows and columns, with quiet labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

PAPER = (252, 251, 248)
INK = (38, 36, 34)
FAINT = (120, 116, 110)


def _resized(picture: Tensor, height: int, width: int) -> Tensor:
    if picture.shape[1:] == (height, width):
        return picture
    return F.interpolate(picture[None], (height, width), mode="bicubic", antialias=True, align_corners=False)[0].clamp(0, 1)


def _crop(picture: Tensor, cell: int) -> Tensor:
    h, w = picture.shape[1:]
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    return _resized(picture[:, top : top + side, left : left + side], cell, cell)


def _letterbox(picture: Tensor, cell: int) -> Tensor:
    h, w = picture.shape[1:]
    scale = cell / max(h, w)
    inner = _resized(picture, max(1, round(h * scale)), max(1, round(w * scale)))
    top, left = (cell - inner.shape[1]) // 2, (cell - inner.shape[2]) // 2
    box = (torch.tensor(PAPER, dtype=inner.dtype) / 255)[:, None, None].repeat(1, cell, cell)
    box[:, top : top + inner.shape[1], left : left + inner.shape[2]] = inner
    return box


FITS: Mapping[str, Callable[[Tensor, int], Tensor]] = {"crop": _crop, "letterbox": _letterbox}


class _Margins(NamedTuple):
    left: int
    top: int
    outer: int


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
    """Pictures ``(3 or 1, h, w)``, 0 to 1, of any sizes, as one picture ``(3, H, W)`` of equal square cells.

    ``None`` leaves a cell empty. ``fit``: "crop" fills a cell with the middle of its picture, "letterbox" shows all of it.
    The gap is a sixteenth of a cell unless given. Labels grow with the cell; one too long for its place ends in dots.

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
    margins = _Margins(
        left=gap + (round(min(longest, cell)) + gap if row_labels else 0),
        top=gap + (round(1.9 * _height(large)) if title else 0) + (round(1.5 * line) if column_labels else 0),
        outer=gap,
    )
    pitch = cell + gap
    height = margins.top + len(rows) * pitch - gap + margins.outer
    width = margins.left + columns * pitch - gap + margins.outer
    image = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(image)
    if title:
        draw.text((margins.left, gap), _short(title, large, width - margins.left - gap), font=large, fill=INK)
    for j, label in enumerate(column_labels):
        place = (margins.left + j * pitch + cell / 2, margins.top - 0.45 * line)
        draw.text(place, _short(label, small, cell), font=small, fill=FAINT, anchor="ms")
    for i, label in enumerate(row_labels):
        place = (margins.left - gap, margins.top + i * pitch + cell / 2)
        draw.text(place, _short(label, small, cell), font=small, fill=FAINT, anchor="rm")
    canvas = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            if picture is None:
                continue
            top, left = margins.top + i * pitch, margins.left + j * pitch
            inside = picture.detach().to("cpu", torch.float32).clamp(0, 1)
            canvas[:, top : top + cell, left : left + cell] = FITS[fit](inside, cell)
    return canvas


def _height(font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> int:
    return round(font.getbbox("Ag")[3])


def _short(label: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, room: float) -> str:
    """The label, or as much of it as there is room for."""
    if font.getlength(label) <= room:
        return label
    while label and font.getlength(label + "...") > room:
        label = label[:-1]
    return label.rstrip() + "..."


def _check(
    rows: Sequence[Sequence[Tensor | None]], row_labels: Sequence[str], column_labels: Sequence[str], cell: int, fit: str
) -> None:
    if not rows or not any(len(row) for row in rows):
        raise ValueError("a sheet needs at least one picture; rows is empty")
    if row_labels and len(row_labels) != len(rows):
        raise ValueError(f"there are {len(rows)} rows and {len(row_labels)} row_labels; give one for each, or none")
    columns = max(len(row) for row in rows)
    if column_labels and len(column_labels) != columns:
        raise ValueError(f"there are {columns} columns and {len(column_labels)} column_labels; give one for each, or none")
    if cell < 1:
        raise ValueError(f"cell={cell}; expected a side of one pixel or more")
    if fit not in FITS:
        raise ValueError(f"fit={fit!r} is not known; choose one of {', '.join(FITS)}")
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            if picture is not None and (picture.ndim != 3 or picture.shape[0] not in (1, 3)):
                raise ValueError(
                    f"the picture in row {i}, column {j} has shape {tuple(picture.shape)}; expected (3, h, w) or (1, h, w): "
                    "take one sample out of a batch"
                )
