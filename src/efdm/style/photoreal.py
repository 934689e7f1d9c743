"""Photo-realistic filters: colours from the stylized image, edges from the content. The table is `PHOTOREAL`.

Both filters fit affine colour maps from the content to the stylized image that vary slowly over the image. Such maps
preserve the edges of the content and cannot represent strokes. They are fitted at a moderate size and applied at full size,
so the network may run on a smaller image without loss of sharpness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data import resize
from efdm.data.images import short_side_size

FIT_SIDE = 512  # short side of the images that the maps are fitted to
RADIUS = 1 / 16  # radius of the guided filter's windows, relative to the short side
FLATNESS = 1e-3  # regularization: colour variance below which a window counts as flat
CELLS = 12  # grid cells along the short side
LEVELS = 8  # grid cells along brightness
TRUST = 20.0  # weight of the global statistics in every cell, in pixels
ROWS = 256  # rows of the output computed in one step


def plain(content: Tensor, stylized: Tensor) -> Tensor:
    """Return the stylized image, resized to the content."""
    return resize(stylized, content.shape[-2:])


def guided(content: Tensor, stylized: Tensor) -> Tensor:
    """Apply a colour guided filter: one affine map per window, averaged over all windows that contain a pixel."""
    x, y = _for_fitting(content, stylized)
    b, _, h, w = x.shape
    mean = partial(_box, radius=max(1, round(min(h, w) * RADIUS)))
    mean_x, mean_y = mean(x), mean(y)
    products = mean((x[:, :, None] * x[:, None]).flatten(1, 2)).view(b, 3, 3, h, w)
    crossed = mean((y[:, :, None] * x[:, None]).flatten(1, 2)).view(b, 3, 3, h, w)
    covariance = (products - mean_x[:, :, None] * mean_x[:, None]).permute(0, 3, 4, 1, 2)
    covariance = covariance + FLATNESS * torch.eye(3, device=x.device)
    joint = (crossed - mean_y[:, :, None] * mean_x[:, None]).permute(0, 3, 4, 1, 2)
    matrix = torch.linalg.solve(covariance, joint, left=False).permute(0, 3, 4, 1, 2)
    offset = mean_y - (matrix * mean_x[:, None]).sum(2)
    maps = mean(torch.cat([matrix.flatten(1, 2), offset], 1))
    return _in_strips(content, lambda rows, top: _read_plane(maps, rows, top, content.shape[-2:]))


def grid(content: Tensor, stylized: Tensor) -> Tensor:
    """Apply a bilateral grid of affine maps over position and brightness, so dark and bright neighbours can differ."""
    x, y = _for_fitting(content, stylized)
    h, w = x.shape[-2:]
    shape = (LEVELS, _cells(h, w), _cells(w, h))
    maps = torch.stack([_fit_grid(p, q, shape) for p, q in zip(x, y, strict=True)])
    return _in_strips(content, lambda rows, top: _read_grid(maps, rows, top, content.shape[-2:]))


PHOTOREAL: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"none": plain, "guided": guided, "grid": grid}


def _for_fitting(content: Tensor, stylized: Tensor) -> tuple[Tensor, Tensor]:
    h, w = content.shape[-2:]
    # no larger than either image: upsampling blurs, and maps fitted to a blurred image lose contrast
    size = short_side_size(h, w, min(FIT_SIDE, h, w, *stylized.shape[-2:]))
    return resize(content, size), resize(stylized, size)


def _in_strips(content: Tensor, maps_of: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Apply maps a few rows at a time, because twelve coefficients per pixel need much memory."""
    out = torch.empty_like(content)
    for top in range(0, content.shape[-2], ROWS):
        rows = content[..., top : top + ROWS, :]
        out[..., top : top + ROWS, :] = _apply(maps_of(rows, top), rows)
    return out.clamp_(0, 1)


def _apply(maps: Tensor, x: Tensor) -> Tensor:
    """Apply maps ``(b, 12, h, w)``: a 3x3 matrix in row-major order and an offset for each pixel."""
    matrix, offset = maps[:, :9].unflatten(1, (3, 3)), maps[:, 9:]
    return (matrix * x[:, None]).sum(2) + offset


def _box(values: Tensor, radius: int) -> Tensor:
    """Return the mean over a square window, clipped at the borders."""
    side = 2 * radius + 1
    rows = F.avg_pool2d(values, (1, side), 1, (0, radius), count_include_pad=False)
    return F.avg_pool2d(rows, (side, 1), 1, (radius, 0), count_include_pad=False)


def _read_plane(maps: Tensor, rows: Tensor, top: int, size: Sequence[int]) -> Tensor:
    y, x = ((2 * torch.arange(side, device=rows.device) + 1) / side - 1 for side in size)
    plane = torch.stack(torch.meshgrid(x, y[top : top + rows.shape[-2]], indexing="xy"), -1)
    return F.grid_sample(maps, plane.expand(len(rows), -1, -1, -1), padding_mode="border", align_corners=False)


def _cells(side: int, other: int) -> int:
    return max(2, round(CELLS * side / min(side, other)))


def _fit_grid(x: Tensor, y: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return the least-squares maps of all cells, ``(12, levels, h, w)``."""
    pixels = torch.cat([x, torch.ones_like(x[:1])]).flatten(1).T.double()  # (n, 4)
    targets = y.flatten(1).T.double()  # (n, 3)
    products = torch.cat([(pixels[:, :, None] * other[:, None]).flatten(1) for other in (pixels, targets)], 1)
    whole = products.mean(0, keepdim=True)
    sums = _blurred(_splat(products, x.mean(-3), shape), shape) + TRUST * whole
    prior = _least_squares(whole, torch.zeros(4, 3).to(whole))
    maps = _least_squares(sums, prior[0])  # flat cells fall back to the global map
    matrix, offset = maps[:, :3].mT.flatten(1), maps[:, 3]
    return torch.cat([matrix, offset], 1).T.reshape(12, *shape).float()


def _least_squares(sums: Tensor, prior: Tensor) -> Tensor:
    """Return maps ``(cells, 4, 3)`` from sums of products, regularized towards ``prior`` where colours vary little."""
    products, targets = sums[:, :16].view(-1, 4, 4), sums[:, 16:].view(-1, 4, 3)
    count = products[:, 3:, 3:]
    pull = FLATNESS * count * torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0]).to(sums))
    return torch.linalg.solve(products + pull, targets + pull @ prior)


def _splat(values: Tensor, brightness: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Distribute the values of every pixel to the eight nearest cells with trilinear weights."""
    ends = zip(shape[1:], brightness.shape, strict=True)
    sides = [torch.linspace(0, cells - 1, pixels, device=values.device) for cells, pixels in ends]
    y, x = torch.meshgrid(*sides, indexing="ij")
    z = brightness.clamp(0, 1) * (shape[0] - 1)
    place = torch.stack([z, y, x], -1).flatten(0, 1).double()
    low = torch.minimum(place.floor(), torch.tensor(shape, device=values.device) - 2).long().clamp(min=0)
    part = place - low
    out = values.new_zeros(shape[0] * shape[1] * shape[2], values.shape[1])
    for corner in range(8):
        up = torch.tensor([corner >> 2 & 1, corner >> 1 & 1, corner & 1], device=values.device)
        weight = torch.where(up.bool(), part, 1 - part).prod(-1, keepdim=True)
        at = low + up
        out.index_add_(0, (at[:, 0] * shape[1] + at[:, 1]) * shape[2] + at[:, 2], values * weight)
    return out


def _blurred(sums: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Blur the grid with the kernel (1, 2, 1) / 4 along every axis."""
    cube = F.pad(sums.T.reshape(1, -1, *shape), (1,) * 6, mode="replicate")
    return F.avg_pool3d(F.avg_pool3d(cube, 2, 1), 2, 1).flatten(2)[0].T  # (1, 1) / 2 twice


def _read_grid(maps: Tensor, rows: Tensor, top: int, size: Sequence[int]) -> Tensor:
    y, x = (torch.linspace(-1, 1, side, device=rows.device) for side in size)
    plane = torch.stack(torch.meshgrid(x, y[top : top + rows.shape[-2]], indexing="xy"), -1).expand(len(rows), -1, -1, -1)
    place = torch.cat([plane, 2 * rows.mean(-3)[..., None] - 1], -1)[:, None]
    return F.grid_sample(maps, place, padding_mode="border", align_corners=True)[:, :, 0]
