"""How much a stylized video flickers, and clips whose true motion is known to measure it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data import read_picture, resize
from efdm.data.embedded import photo
from efdm.style.color import luminance
from efdm.style.motion import warp

STILL = 4 / 255  # a pixel whose surroundings change by less than this did not move; camera noise averages to less
NOISE = 2 / 255  # standard deviation; what a good camera adds by day


class Clip(NamedTuple):
    """Frames ``(3, h, w)`` in [0, 1], and for each but the first the motion from the frame before (`efdm.style.motion`)."""

    frames: list[Tensor]
    motions: list[Tensor]


def measure(
    contents: Sequence[Tensor], outputs: Sequence[Tensor], motion: Sequence[Tensor] | None = None
) -> dict[str, float]:
    """Changes from frame to frame that the content does not explain; all in levels of 255, smaller is calmer.

    ``still``: mean absolute change of the output where the content stands still, and ``still_content``: that of the
    content itself (its noise). ``warping``, with known ``motion``: mean absolute difference between a frame and the one
    before moved to its place, where that can be told, and ``warping_content`` for the content. ``blinking``: what changes
    and changes back, the second difference of the output's mean luminance. ``detail`` is no flicker: the mean absolute
    slope of the output. A calm video that is merely blurred has lost it.
    """
    if len(contents) != len(outputs) or len(outputs) < 3:
        raise ValueError(f"{len(contents)} contents and {len(outputs)} outputs; give as many of each, at least 3")
    if motion is not None and len(motion) != len(outputs) - 1:
        raise ValueError(f"{len(motion)} motions for {len(outputs)} frames; give one for every frame but the first")
    size = outputs[0].shape[-2:]
    contents = [resize(c, (size[0], size[1])) for c in contents]
    still = [_still(a, b) for a, b in pairwise(contents)]
    found = {"still": _change(outputs, still), "still_content": _change(contents, still)}
    if motion is not None:
        found |= {"warping": _warping(outputs, motion), "warping_content": _warping(contents, motion)}
    mean = torch.stack([luminance(x).mean() for x in outputs])
    found["blinking"] = float((mean[2:] - 2 * mean[1:-1] + mean[:-2]).abs().mean())
    found["detail"] = sum(float(x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()) / 2 for x in outputs) / len(
        outputs
    )
    return {name: 255 * value for name, value in found.items()}


def _still(before: Tensor, now: Tensor) -> Tensor:
    """``(h, w)`` of bool. Averaged over a window, so that noise does not select the pixels where there is little of it."""
    change = F.avg_pool2d((now - before)[None], 9, stride=1, padding=4, count_include_pad=False)[0]
    moving = F.avg_pool2d((now - before).abs()[None], 9, stride=1, padding=4, count_include_pad=False)[0]
    return (change.abs().amax(0) < STILL) & (moving.amax(0) < 2 * STILL)


def _change(frames: Sequence[Tensor], where: Sequence[Tensor]) -> float:
    """Mean absolute change over the selected pixels of all frames; NaN where none is selected."""
    pairs = zip(frames, frames[1:], where, strict=False)
    changes = torch.cat([(b - a).abs().mean(0)[w] for a, b, w in pairs])
    return float(changes.mean())


def _warping(frames: Sequence[Tensor], motions: Sequence[Tensor]) -> float:
    errors = []
    for before, now, motion in zip(frames, frames[1:], motions, strict=False):
        moved, known = warp(before, motion)
        errors.append((now - moved).abs().mean(0)[known])
    return float(torch.cat(errors).mean())


# --- clips -----------------------------------------------------------------------------------------------------------


def pan(frames: int, size: tuple[int, int], step: tuple[int, int] = (1, 3)) -> Clip:
    """A camera that turns: whole pixels a frame, so that the true motion needs no interpolation."""
    picture = _picture("coffee", (size[0] + step[0] * frames, size[1] + step[1] * frames))
    shown = [picture[:, i * step[0] :, i * step[1] :][:, : size[0], : size[1]] for i in range(frames)]
    motion = torch.tensor(step, dtype=torch.float32)[:, None, None].expand(2, *size)
    return Clip(shown, [motion] * (frames - 1))


def zoom(frames: int, size: tuple[int, int], rate: float = 0.01) -> Clip:
    """A camera that comes closer, by ``rate`` a frame."""
    picture = _picture("astronaut", (2 * size[0], 2 * size[1]))
    y, x = torch.meshgrid(torch.linspace(-1, 1, size[0]), torch.linspace(-1, 1, size[1]), indexing="ij")
    grids = [torch.stack([x, y], -1)[None] * (1 - rate) ** i for i in range(frames)]
    shown = [F.grid_sample(picture[None], g, mode="bilinear", align_corners=True)[0] for g in grids]
    # what is now at p from the middle was at (1 - rate) p: frames shrink their view
    motion = torch.stack([y * (size[0] - 1) / 2, x * (size[1] - 1) / 2]) * -rate
    return Clip([s.clamp(0, 1) for s in shown], [motion] * (frames - 1))


def passing(frames: int, size: tuple[int, int], step: int = 4) -> Clip:
    """A camera that stands, and a round thing that passes through its view."""
    ground, thing = _picture("cat", size), _picture("hopper", size)
    y, x = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    discs = [(y - size[0] // 2) ** 2 + (x - size[1] // 4 - i * step) ** 2 < (size[0] // 5) ** 2 for i in range(frames)]
    shown = [torch.where(d, thing.roll(i * step, -1), ground) for i, d in enumerate(discs)]
    motions = []
    for before, now in pairwise(discs):
        motion = torch.zeros(2, *size)
        motion[1] = torch.where(now, -float(step), motion[1])
        motions.append(torch.where((before & ~now).expand(2, -1, -1), torch.nan, motion))  # just uncovered
    return Clip(shown, motions)


def entering(frames: int, size: tuple[int, int]) -> Clip:
    """A camera that stands, and a bright wall that slides in until it covers half of the view."""
    ground = _picture("cat", size)
    edges = [size[1] * i // (2 * (frames - 1)) for i in range(frames)]
    wall = torch.tensor([0.95, 0.9, 0.8])[:, None, None].expand(3, *size)
    columns = torch.arange(size[1]).expand(size)
    shown = [torch.where(columns < edge, wall, ground) for edge in edges]
    motions = []
    for before, now in pairwise(edges):
        motion = torch.zeros(2, *size)
        motion[1] = torch.where(columns < now, float(before - now), motion[1])
        motions.append(motion)
    return Clip(shown, motions)


def exposure(frames: int, size: tuple[int, int], step: float = 0.03) -> Clip:
    """A camera that stands while its exposure wavers: the same scene, a little brighter and darker."""
    ground = _picture("coffee", size)
    shown = [(ground * (1 + (step if i % 2 else -step))).clamp(0, 1) for i in range(frames)]
    return Clip(shown, [torch.zeros(2, *size)] * (frames - 1))


CLIPS: Mapping[str, Callable[[int, tuple[int, int]], Clip]] = MappingProxyType({
    "pan": pan,
    "zoom": zoom,
    "passing": passing,
    "entering": entering,
    "exposure": exposure,
})  # fmt: skip


def clip(name: str, *, frames: int = 16, size: tuple[int, int] = (240, 320), noise: float = NOISE, seed: int = 0) -> Clip:
    """A row of `CLIPS` with the noise of a camera added."""
    if name not in CLIPS:
        raise ValueError(f"{name!r} is not a clip; choose one of {', '.join(CLIPS)}")
    made = CLIPS[name](frames, size)
    generator = torch.Generator().manual_seed(seed)
    noisy = [(f + noise * torch.randn(f.shape, generator=generator)).clamp(0, 1) for f in made.frames]
    return Clip(noisy, made.motions)


def _picture(name: str, size: tuple[int, int]) -> Tensor:
    """An embedded photo that covers the size, cut to it from its middle."""
    rgb = read_picture(photo(name)).rgb
    scale = max(size[0] / rgb.shape[1], size[1] / rgb.shape[2])
    rgb = resize(rgb, (max(size[0], round(rgb.shape[1] * scale)), max(size[1], round(rgb.shape[2] * scale))))
    top, left = (rgb.shape[1] - size[0]) // 2, (rgb.shape[2] - size[1]) // 2
    return rgb[:, top : top + size[0], left : left + size[1]]
