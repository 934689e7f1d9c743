"""Estimate the motion between two frames, and warp by it.

A motion is ``(2, h, w)``, rows before columns: the pixel at ``p`` was at ``p + motion[:, p]`` in the previous frame. NaN
marks a pixel that was occluded; a position outside the frame marks one that was out of view.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data import resize
from efdm.style.color import luminance

FINEST = 160  # short side at which motion is estimated; at 96, the warping error of a pan is 20 % larger
LEVELS = 4  # levels of the pyramid; the coarsest has a short side of 20
ROUNDS = 3  # iterations at each level
WINDOW = 9  # side of the least-squares window in pixels
STIFFNESS = 1e-4  # regularization for flat areas: below the squared gradient of visible edges, above that of noise
STANDING = 0.2  # pixels; shorter motions are set to 0, because warping by them only blurs
GAIN = 1.25  # largest change of exposure between two frames


def warp(before: Tensor, motion: Tensor) -> tuple[Tensor, Tensor]:
    """Return the previous frame ``(c, h, w)`` warped to the current one, and the mask ``(h, w)`` of pixels in view."""
    height, width = before.shape[-2:]
    rows = torch.arange(height, device=before.device, dtype=before.dtype)[:, None] + motion[0]
    columns = torch.arange(width, device=before.device, dtype=before.dtype)[None] + motion[1]
    slack = 1e-3
    known = (rows >= -slack) & (rows <= height - 1 + slack) & (columns >= -slack) & (columns <= width - 1 + slack)
    grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1).nan_to_num()
    # bicubic, because repeated linear interpolation blurs
    moved = F.grid_sample(before[None], grid[None], mode="bicubic", padding_mode="border", align_corners=False)
    return moved[0], known


def estimate_motion(now: Tensor, before: Tensor) -> Tensor:
    """Estimate the motion between two frames ``(3, h, w)`` with the pyramidal Lucas-Kanade method."""
    height, width = now.shape[-2:]
    scale = min(1.0, FINEST / min(height, width))
    finest = (max(8, round(height * scale)), max(8, round(width * scale)))
    pair = [resize(luminance(x), finest) for x in (now, before)]
    motion = now.new_zeros(2, 1, 1)
    for level in reversed(range(LEVELS)):
        size = (max(8, finest[0] >> level), max(8, finest[1] >> level))
        a, b = (resize(x, size) for x in pair)
        motion = resize_motion(motion, size)
        for _ in range(ROUNDS):
            motion = box_blur(motion + _correction(a, warp(b, motion)[0]), 3)
    motion = resize_motion(motion, (height, width))
    return torch.where(motion.norm(dim=0, keepdim=True) < STANDING, 0.0, motion)


def match_exposure(before: Tensor, now: Tensor) -> Tensor:
    """Scale the previous frame to the exposure of the current one, by the median ratio, which ignores moving objects."""
    small = [F.adaptive_avg_pool2d(x, (24, 32)).flatten(1) for x in (before, now)]
    ratio = (small[1] + 0.02) / (small[0] + 0.02)
    return before * ratio.median(-1).values.clamp(1 / GAIN, GAIN)[:, None, None]


def resize_motion(motion: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the motion for a frame of another size."""
    height, width = motion.shape[-2:]
    grown = F.interpolate(motion[None], size=size, mode="bilinear", align_corners=False)[0]
    return grown * grown.new_tensor([size[0] / height, size[1] / width])[:, None, None]


def _correction(now: Tensor, moved: Tensor) -> Tensor:
    padded = F.pad(moved[None], (1, 1, 1, 1), mode="replicate")[0]
    dy = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2
    dx = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2
    dt = now - moved
    yy, xx, xy, ty, tx = box_blur(torch.cat([dy * dy, dx * dx, dx * dy, dt * dy, dt * dx]), WINDOW).unbind(0)
    yy, xx = yy + STIFFNESS, xx + STIFFNESS
    determinant = yy * xx - xy * xy
    step = torch.stack([(xx * ty - xy * tx) / determinant, (yy * tx - xy * ty) / determinant])
    return step.clamp(-1, 1)  # the linear model is valid for about one pixel


def box_blur(x: Tensor, side: int) -> Tensor:
    """Return the mean of ``(c, h, w)`` over squares of odd ``side``, with replicated borders."""
    margin = side // 2
    return F.avg_pool2d(F.pad(x[None], (margin,) * 4, mode="replicate"), side, stride=1)[0]
