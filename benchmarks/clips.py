"""A measure of the flicker of stylized videos, and synthetic clips with known motion."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data import read_picture, resize
from efdm.data.embedded import photos
from efdm.style.color import luminance
from efdm.style.motion import warp

STILL = 4 / 255  # a pixel is still if its neighbourhood changes by less than this; averaged camera noise is smaller
NOISE = 2 / 255  # standard deviation of a good camera's noise in daylight


class Clip(NamedTuple):
    """Frames ``(3, h, w)`` in [0, 1], and the motion (`efdm.style.motion`) from each frame to the next."""

    frames: list[Tensor]
    motions: list[Tensor]


def measure(
    contents: Sequence[Tensor], outputs: Sequence[Tensor], motion: Sequence[Tensor] | None = None
) -> dict[str, float]:
    """Measure the changes between frames that the content does not explain, in levels of 255. Lower means less flicker.

    Returns:
        ``still``: mean absolute change of the output where the content is still; ``still_content``: the same for the content
        itself, which is its noise. ``warping`` (with known ``motion``): mean absolute difference between a frame and its
        predecessor warped onto it, where the motion is known; ``warping_content``: the same for the content. ``blinking``:
        mean absolute second difference of the output's mean luminance. ``detail``: mean absolute gradient of the output,
        which drops if flicker is low only because the video is blurred.
    """
    size = outputs[0].shape[-2:]
    contents = [resize(c, (size[0], size[1])) for c in contents]
    still = [_still(a, b) for a, b in pairwise(contents)]
    both = {"": outputs, "_content": contents}
    found = {f"still{name}": _change(frames[:-1], frames[1:], still) for name, frames in both.items()}
    if motion is not None:
        found |= {f"warping{name}": _warping(frames, motion) for name, frames in both.items()}
    mean = torch.stack([luminance(x).mean() for x in outputs])
    found["blinking"] = float((mean[2:] - 2 * mean[1:-1] + mean[:-2]).abs().mean())
    gradients = [float(x.diff(dim=-1).abs().mean() + x.diff(dim=-2).abs().mean()) / 2 for x in outputs]
    found["detail"] = sum(gradients) / len(gradients)
    return {name: 255 * value for name, value in found.items()}


def _still(before: Tensor, now: Tensor) -> Tensor:
    """Return a mask ``(h, w)``. Changes are averaged over a window, so that noise does not select the pixels."""
    change = F.avg_pool2d((now - before)[None], 9, stride=1, padding=4, count_include_pad=False)[0]
    moving = F.avg_pool2d((now - before).abs()[None], 9, stride=1, padding=4, count_include_pad=False)[0]
    return (change.abs().amax(0) < STILL) & (moving.amax(0) < 2 * STILL)


def _change(befores: Sequence[Tensor], nows: Sequence[Tensor], where: Sequence[Tensor]) -> float:
    """Return the mean absolute change over the selected pixels of all frames, NaN if no pixel is selected."""
    changes = [(now - before).abs().mean(0)[mask] for before, now, mask in zip(befores, nows, where, strict=True)]
    return float(torch.cat(changes).mean())


def _warping(frames: Sequence[Tensor], motions: Sequence[Tensor]) -> float:
    moved, known = zip(*map(warp, frames, motions), strict=True)  # the last frame has no motion
    return _change(moved, frames[1:], known)


def pan(frames: int, size: tuple[int, int], step: tuple[int, int] = (1, 3)) -> Clip:
    """Pan the camera by whole pixels per frame, so that the true motion needs no interpolation."""
    picture = _picture("coffee", (size[0] + step[0] * frames, size[1] + step[1] * frames))
    shown = [picture[:, i * step[0] :, i * step[1] :][:, : size[0], : size[1]] for i in range(frames)]
    motion = torch.tensor(step, dtype=torch.float32)[:, None, None].expand(2, *size)
    return Clip(shown, [motion] * (frames - 1))


def zoom(frames: int, size: tuple[int, int], rate: float = 0.01) -> Clip:
    """Zoom in by ``rate`` per frame."""
    picture = _picture("astronaut", (2 * size[0], 2 * size[1]))
    y, x = torch.meshgrid(torch.linspace(-1, 1, size[0]), torch.linspace(-1, 1, size[1]), indexing="ij")
    grids = [torch.stack([x, y], -1)[None] * (1 - rate) ** i for i in range(frames)]
    shown = [F.grid_sample(picture[None], g, mode="bilinear", align_corners=True)[0] for g in grids]
    # a point at p from the centre was at (1 - rate) p in the previous frame
    motion = torch.stack([y * (size[0] - 1) / 2, x * (size[1] - 1) / 2]) * -rate
    return Clip([s.clamp(0, 1) for s in shown], [motion] * (frames - 1))


def passing(frames: int, size: tuple[int, int], step: int = 4) -> Clip:
    """Move a disc through the view of a static camera."""
    ground, disc = _picture("cat", size), _picture("hopper", size)
    y, x = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    discs = [(y - size[0] // 2) ** 2 + (x - size[1] // 4 - i * step) ** 2 < (size[0] // 5) ** 2 for i in range(frames)]
    shown = [torch.where(d, disc.roll(i * step, -1), ground) for i, d in enumerate(discs)]
    motions = []
    for before, now in pairwise(discs):
        motion = torch.zeros(2, *size)
        motion[1] = torch.where(now, -float(step), motion[1])
        motions.append(torch.where((before & ~now).expand(2, -1, -1), torch.nan, motion))  # newly uncovered, motion unknown
    return Clip(shown, motions)


def entering(frames: int, size: tuple[int, int]) -> Clip:
    """Slide a bright wall into the view of a static camera until it covers half of it."""
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
    """Alternate the exposure of a static camera: the same scene, slightly brighter and darker."""
    ground = _picture("coffee", size)
    shown = [(ground * (1 + (step if i % 2 else -step))).clamp(0, 1) for i in range(frames)]
    return Clip(shown, [torch.zeros(2, *size)] * (frames - 1))


CLIPS: Mapping[str, Callable[[int, tuple[int, int]], Clip]] = MappingProxyType(
    {make.__name__: make for make in (pan, zoom, passing, entering, exposure)}
)


def clip(name: str, *, frames: int = 16, size: tuple[int, int] = (240, 320), noise: float = NOISE) -> Clip:
    """Return a clip of `CLIPS` with added camera noise."""
    made = CLIPS[name](frames, size)
    generator = torch.Generator().manual_seed(0)
    noisy = [(f + noise * torch.randn(f.shape, generator=generator)).clamp(0, 1) for f in made.frames]
    return Clip(noisy, made.motions)


def _picture(name: str, size: tuple[int, int]) -> Tensor:
    """Return an embedded photo, resized to cover ``size`` and cropped to its centre."""
    rgb = read_picture(photos()[name]).rgb
    scale = max(size[0] / rgb.shape[1], size[1] / rgb.shape[2])
    rgb = resize(rgb, (max(size[0], round(rgb.shape[1] * scale)), max(size[1], round(rgb.shape[2] * scale))))
    top, left = (rgb.shape[1] - size[0]) // 2, (rgb.shape[2] - size[1]) // 2
    return rgb[:, top : top + size[0], left : left + size[1]]
