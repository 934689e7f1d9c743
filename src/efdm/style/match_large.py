"""Exact matching in chunks: of videos, and of arrays that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from efdm.data.video import Frame, VideoReader, VideoWriter
from efdm.errors import SettingError
from efdm.progress import Progress, Report, ignore
from efdm.style.color_match import Reference, check_fit, content_bins, count_chunks, match_chunk, replace_valid
from efdm.style.levels import HALO, take_ranks
from efdm.style.options import MatchOptions, check_match
from efdm.style.planes import LEVELS_OF, Planes, from_array

CHUNK = 2**24  # values in a chunk
HALF, GROUP = 2**16, 256  # values of 16 bits, and number of upper halves whose lower halves are counted in one pass


def match_array(
    content: NDArray[Any],
    reference: Reference,
    out: NDArray[Any],
    *,
    strength: float = 1.0,
    ties: str = "smooth",
    tolerance: float = 0.0,
    mask: NDArray[Any] | None = None,
    nodata: float | None = None,
    seed: int = 0,
    rows: int | None = None,
    device: Any = "cpu",
    progress: Report = ignore,
) -> None:
    """Write the match of ``content`` ``(h, w)`` or ``(h, w, c)`` to ``out``, in two passes over chunks of ``rows`` rows.

    The result does not depend on ``rows`` and equals that of `efdm.style.match_picture` on the whole array. Arrays of
    ``np.memmap`` are read and written chunk by chunk. float16 and float32 in RGB take three or more passes and ignore
    ``ties``: equal values are ordered by position. Joint matches and float64 need the whole picture.
    """
    check_match(reference.space, reference.method, strength, ties, tolerance)
    check_fit(content.shape[2] if content.ndim == 3 else 1, reference)
    if reference.method == "joint":
        raise SettingError("a joint match needs the whole picture in memory; use method='channels'", "method")
    levels = LEVELS_OF.get(content.dtype.name, 0)
    rows = rows or max(1, CHUNK // (content.size // len(content)))
    tops = range(0, len(content), rows)
    if not levels and reference.space == "rgb":
        if tolerance:
            raise SettingError("floats in chunks are matched exactly; use tolerance=0", "tolerance")
        if content.dtype == np.float64:
            raise SettingError("float64 is matched in memory only; convert it to float32 to match it in chunks", "content")
        _match_floats(lambda top: _planes(content, mask, nodata, top, top + rows), tops, reference, out, strength, progress)
        return
    done = count()

    def read() -> Iterator[tuple[Planes, Tensor]]:
        for top in tops:
            progress(Progress("matching", next(done), 2 * len(tops)))
            bottom = min(top + rows, len(content))
            above = max(0, top - HALO)  # the order of ties depends on the rows around a chunk
            wide, inside = _planes(content, mask, nodata, above, bottom + HALO, device), (top - above, bottom - above)
            yield wide.crop(*inside), content_bins(wide, reference.space, ties, seed, above, inside)

    curves = count_chunks((bins for _, bins in read()), levels, reference.to(device), tolerance)
    for top, (planes, bins) in zip(tops, read(), strict=True):
        _write(out, top, match_chunk(curves, planes, bins, reference.space, strength))
    progress(Progress("matching", 2 * len(tops), 2 * len(tops)))


def match_video(source: Path, reference: Reference, out: Path, options: MatchOptions, *, progress: Report = ignore) -> int:
    """Match a video, all frames as one distribution, and return the number of frames.

    All frames are mapped by the same curves, so the colours do not flicker. The video is read twice. An incomplete result is
    written under another name.
    """
    if reference.method == "joint":
        raise SettingError("a video cannot be matched jointly; use method='channels'", "method")
    if options.mask is not None:
        raise SettingError("masks apply to pictures, not to a video; omit the mask", "mask")
    check_fit(3, reference)
    done = count(1)

    def read() -> Iterator[tuple[Frame, Planes, Tensor]]:
        with VideoReader(source) as reader:
            for frame in reader:
                planes = Planes(frame.rgb.to(options.device).int(), 256, None)
                yield frame, planes, content_bins(planes, reference.space, options.ties, options.seed)
                progress(Progress(source.name, now := next(done), max(2 * (reader.frames or 0), now)))

    with VideoReader(source) as reader:
        sound = source if options.audio == "keep" else None
        writer = VideoWriter(out, fps=reader.fps, sound_of=sound, aspect=reader.aspect)
    with writer:
        curves = count_chunks((bins for _, _, bins in read()), 256, reference.to(options.device), options.tolerance)
        for frame, planes, bins in read():
            matched = match_chunk(curves, planes, bins, reference.space, options.strength)
            writer.write(matched.byte(), frame.time, frame.duration)
    if (reader.frames or 0) > writer.frames:  # an estimate
        progress(Progress(source.name, 2 * writer.frames, 2 * writer.frames))
    return writer.frames


def float_keys(values: Tensor) -> Tensor:
    """Return int64 keys in [0, 2^32) that sort like the float32 values. Both zeros have the same key."""
    bits = (values + 0.0).view(torch.int32).long() & 0xFFFFFFFF
    return torch.where(bits >= 2**31, 0xFFFFFFFF - bits, bits + 2**31)


def _match_floats(
    read: Callable[[int], Planes], tops: range, reference: Reference, out: NDArray[Any], strength: float, progress: Report
) -> None:
    """Match floats by counting their upper 16 bits, then the lower 16 bits of values in a group of upper halves at a time.

    The memory is bounded, and the number of passes grows with the variety of exponents. Equal values are ranked by position.
    """
    upper = torch.zeros(reference.channels, HALF, dtype=torch.int64)

    def chunks() -> Iterator[tuple[int, Planes, Tensor]]:
        for top in tops:
            planes = read(top)
            yield top, planes, float_keys(planes.pick(planes.values))

    for _, _, keys in chunks():
        for row, key in zip(upper, keys, strict=True):
            row += torch.bincount(key >> 16, minlength=HALF)
    n = int(upper[0].sum())
    values = reference.floats().float().cpu()  # the chunks are counted on the CPU
    groups = upper.any(0).nonzero()[:, 0].split(GROUP)
    for number, group in enumerate(groups):
        slots, first = torch.full((HALF,), -1), torch.zeros(len(upper), GROUP * HALF, dtype=torch.int64)
        slots[group] = torch.arange(len(group))
        for _, _, keys in chunks():
            for row, (_, bins) in zip(first, _in_group(keys, slots), strict=True):
                row.scatter_add_(0, bins, torch.ones_like(bins))  # bincount would allocate all bins again
        for row, counts in zip(first, upper, strict=True):
            before = int(counts[: group[0]].sum()) if number else 0  # values in earlier groups
            row.copy_(row.cumsum(0).sub_(row).add_(before))
        for done, (top, planes, keys) in enumerate(chunks(), number * len(tops)):
            progress(Progress("matching", done, len(groups) * len(tops)))
            bottom = top + planes.values.shape[1]
            base = planes.values if number == 0 else from_array(out[top:bottom]).values  # with the groups matched so far
            content, merged = planes.pick(planes.values), planes.pick(base).clone()
            for channel, (where, bins) in enumerate(_in_group(keys, slots)):
                rank, order = take_ranks(bins, first[channel])
                place, matched = where[order], read_quantiles(values[channel], rank, n)
                merged[channel, place] = torch.lerp(content[channel, place], matched, strength) if strength < 1 else matched
            _write(out, top, replace_valid(replace(planes, values=base), merged, 1.0))
    progress(Progress("matching", len(groups) * len(tops), len(groups) * len(tops)))


def _in_group(keys: Tensor, slots: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for every channel the positions of the values in a group, and their bins."""
    for key in keys:
        at = slots[key >> 16]
        where = (at >= 0).nonzero()[:, 0]
        yield where, at[where] * HALF + (key[where] & 0xFFFF)


def read_quantiles(ordered: Tensor, rank: Tensor, n: int) -> Tensor:
    """Return the values of a sorted row at some ranks of ``n``. `efdm.ops.resample.resample_sorted` returns all ranks."""
    m = len(ordered)
    if 4 * n * m < 2**63:
        numerator = (2 * rank + 1) * m - n
        left = torch.div(numerator, 2 * n, rounding_mode="floor")
        rest = numerator - left * (2 * n)
        weight = rest.float() / (2 * n)
    else:  # products exceed 64 bits; float64 is exact if the sizes are equal
        at = (rank + 0.5) * (m / n) - 0.5
        left = at.floor().long()
        rest = at - left
        weight = rest.float()
    low, high = ordered[left.clamp(0, m - 1)], ordered[(left + 1).clamp(0, m - 1)]
    return torch.where(rest == 0, low, torch.lerp(low, high, weight))


def _planes(
    content: NDArray[Any], mask: NDArray[Any] | None, nodata: float | None, first: int, last: int, device: Any = "cpu"
) -> Planes:
    """Return the planes of the rows ``[first:last]``."""
    valid = None if mask is None else torch.from_numpy(np.asarray(mask[first:last]) > 0)
    return from_array(content[first:last], valid, nodata, device)


def _write(out: NDArray[Any], top: int, values: Tensor) -> None:
    pixels = values.permute(1, 2, 0).cpu().numpy()
    out[top : top + len(pixels)] = pixels.reshape(len(pixels), *out.shape[1:])
