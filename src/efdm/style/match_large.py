"""Exact matching of arrays that do not fit into memory, in chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from efdm.errors import SettingError
from efdm.ops.choices import check_choice
from efdm.progress import Progress, Report, ignore
from efdm.style.color_match import (
    Reference,
    check_fit,
    content_bins,
    from_space,
    level_match,
    ordered_unit,
    replace_valid,
)
from efdm.style.levels import HALO, TIES
from efdm.style.planes import LEVELS_OF, Planes, from_array
from efdm.style.stylizer import check_strength

CHUNK = 2**24  # values in a chunk


def match_array(
    content: NDArray[Any],
    reference: Reference,
    out: NDArray[Any],
    *,
    strength: float = 1.0,
    ties: str = "smooth",
    mask: NDArray[Any] | None = None,
    nodata: float | None = None,
    seed: int = 0,
    rows: int | None = None,
    device: Any = "cpu",
    progress: Report = ignore,
) -> None:
    """Write the match of ``content`` ``(h, w)`` or ``(h, w, c)`` to ``out``, in two passes over chunks of ``rows`` rows.

    All of it has one distribution, and the result equals that of `efdm.style.match_picture` on the whole array, for any
    number of rows in a chunk and any number of values: equal values are ordered by ``ties``, and what is still equal by row
    and column. Arrays of ``np.memmap`` are read and written chunk by chunk. Joint matches need the whole picture.
    """
    check_choice("ties", ties, tuple(TIES))
    check_strength(strength, 1)
    check_fit(content.shape[2] if content.ndim == 3 else 1, reference)
    if reference.method == "joint":
        raise SettingError("a joint match needs the whole picture in memory; use method='channels'", "method")
    levels = LEVELS_OF.get(content.dtype.name, 0)
    if not levels and reference.space == "rgb":
        raise SettingError(f"{content.dtype} is matched in memory only; chunks need uint8 or uint16", "content")
    counter = level_match(levels, reference)
    rows = rows or max(1, CHUNK // (content.size // len(content)))
    parts = 2 * -(-len(content) // rows)

    def chunks(first: int) -> Iterator[tuple[int, Planes, Tensor]]:
        for done, top in enumerate(range(0, len(content), rows)):
            progress(Progress("matching", first + done, parts))
            planes, unit = _chunk(content, mask, top, min(top + rows, len(content)), ties, seed, nodata, device)
            yield top, planes, content_bins(planes, unit, reference.space)

    for _, _, bins in chunks(0):
        counter.count(bins)
    for top, planes, bins in chunks(parts // 2):
        values = replace_valid(planes, from_space(counter.map(bins), planes, reference.space), strength)
        pixels = values.permute(1, 2, 0).cpu().numpy().astype(content.dtype)
        out[top : top + len(pixels)] = pixels.reshape(len(pixels), *content.shape[1:])
    progress(Progress("matching", parts, parts))


def _chunk(
    content: NDArray[Any],
    mask: NDArray[Any] | None,
    top: int,
    bottom: int,
    ties: str,
    seed: int,
    nodata: float | None,
    device: Any,
) -> tuple[Planes, Tensor]:
    """Return the planes of some rows, and their values in the order of ties, which also depends on the rows around them."""
    above, below = max(0, top - HALO), min(len(content), bottom + HALO)
    valid = None if mask is None else torch.from_numpy(np.asarray(mask[above:below]) > 0)
    wide = from_array(content[above:below], valid, nodata, device)
    inside = (top - above, bottom - above)
    return wide.crop(*inside), ordered_unit(wide, ties, seed, above)[:, slice(*inside)]
