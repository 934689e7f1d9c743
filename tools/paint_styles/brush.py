"""Canvases with relief, and brushes that follow a flow.

Lengths are in pixels of a 512-pixel picture, so other sizes give the same picture. The canvas has twice the resolution of
the picture, for anti-aliasing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .fields import Array, at, jitter, noise, resize, unit

Mask = NDArray[np.bool_]
Painter = Callable[[int, Generator], Array]

OVERSAMPLING = 2  # canvas pixels per picture pixel, along each axis
SCALE = 512  # lengths are in pixels of a picture of this size
SPACING = 0.69  # below 1/sqrt(2), a grid rotated by any angle covers every pixel
CHUNK = 1 << 20  # stroke samples per step, few enough for the cache
LINEAGES = 40  # bristle patterns per brush


@dataclass
class Canvas:
    """Colour ``(m, m, 3)`` and relief of the paint ``(m, m)``, at `OVERSAMPLING` times the size of the picture."""

    colour: Array
    relief: Array

    @property
    def side(self) -> int:
        return self.relief.shape[0]


def canvas(size: int, ground: Array) -> Canvas:
    """Return a canvas primed with a colour, or with a picture of any size."""
    m = OVERSAMPLING * size
    if ground.ndim == 3:
        ground = np.stack([resize(ground[..., c], (m, m)) for c in range(3)], -1)
    return Canvas(np.broadcast_to(ground, (m, m, 3)).astype(np.float32), np.zeros((m, m), np.float32))


@dataclass(frozen=True)
class Brush:
    """A brush, with lengths in pixels of a 512-pixel picture. ``dry`` goes from 0 (opaque) to 1 (strokes break up)."""

    length: float
    width: float
    dry: float = 0.3
    streak: float = 0.06  # variation of the colour between bristles
    body: float = 1.0  # thickness of the paint
    tip: str = "round"  # a row of TIPS


def _round(along: Array, across: Array, aspect: float, rough: Array) -> Mask:
    cap = np.clip(1 - aspect * (1 - np.abs(along)), 0, None)  # in half widths
    return across**2 + cap**2 + 0.25 * rough < 1


def _flat(along: Array, across: Array, aspect: float, rough: Array) -> Mask:
    return (np.abs(across) < 0.95 + 0.1 * rough) & (np.abs(along) < 0.93 + 0.12 * rough)


TIPS: Mapping[str, Callable[[Array, Array, float, Array], Mask]] = {"round": _round, "flat": _flat}


def _bristles(brush: Brush, rng: Generator, rows: int, columns: int) -> tuple[Mask, Array, Array]:
    """Return coverage, height and streaks of each bristle pattern, ``(LINEAGES, rows * columns)``."""
    s = np.linspace(-1, 1, rows, dtype=np.float32)[:, None]
    t = np.linspace(-1, 1, columns, dtype=np.float32)[None, :]
    sticks, heights, streaks = [], [], []
    for _ in range(LINEAGES):
        knots = (3, max(3, columns // 3)), (max(2, rows // 6), max(2, columns // 4))
        fields = (resize(rng.standard_normal(shape).astype(np.float32), (rows, columns)) for shape in knots)
        hair, rough = (np.clip(field, -2, 2) / 2 for field in fields)
        shape = TIPS[brush.tip](s, t, brush.length / brush.width, rough)
        emptied = brush.dry * (0.5 + 0.5 * s) ** 1.5
        sticks.append(shape & (0.7 * hair + 0.3 * rough > 2 * emptied - 1.15))
        ridge = np.abs(t) ** 4 * 0.6 + np.clip(s, 0, 1) ** 6 * 0.5  # paint is pushed to the sides and ahead
        heights.append(brush.body * (0.6 + 0.35 * hair + 0.08 * rough + ridge))
        streaks.append(brush.streak * (hair + 0.35 * rough))
    flat = (np.stack(values).reshape(LINEAGES, -1) for values in (sticks, heights, streaks))
    return next(flat), *(values.astype(np.float32) for values in flat)


def trace(flow: Array, centres: Array, length: float, joints: int = 9) -> Array:
    """Return paths ``(strokes, joints, 2)`` of a given length along the flow, centred at ``centres``."""
    stride = length / (joints - 1)
    halves = []
    for sign in (-1, 1):
        points = [centres]
        for _ in range(joints // 2):
            points.append(points[-1] + sign * stride * at(flow, points[-1]))
        halves.append(points)
    return np.stack(halves[0][:0:-1] + halves[1], 1).astype(np.float32)


def lay(on: Canvas, rng: Generator, brush: Brush, flow: Array, centres: Array, colours: Array) -> None:
    """Paint a stroke at each centre in the unit square, in order, along the flow ``(n, n, 2)``."""
    m = on.side
    pixels = m / SCALE
    rows, columns = (max(3, int(side * pixels / SPACING) + 1) for side in (brush.length, brush.width))
    sticks, heights, streaks = _bristles(brush, rng, rows, columns)
    lineage = rng.integers(0, LINEAGES, len(centres))
    half = brush.width * pixels / 2 * rng.uniform(0.75, 1, len(centres)).astype(np.float32)
    joints = trace(flow, centres.astype(np.float32), brush.length / SCALE) * m
    position = np.linspace(0, joints.shape[1] - 1, rows)
    weights = np.clip(1 - np.abs(position[:, None] - np.arange(joints.shape[1])), 0, 1).astype(np.float32)
    t = np.linspace(-1, 1, columns, dtype=np.float32)
    several = max(1, CHUNK // (rows * columns))
    winner = np.full(m * m, -1, np.int64)
    for first in range(0, len(centres), several):
        some = slice(first, first + several)
        spine = np.einsum("rj,njc->nrc", weights, joints[some])
        tangent = unit(np.gradient(spine, axis=1))
        side = tangent * half[some, None, None]
        y = (spine[..., 0, None] + side[..., 1, None] * t).astype(np.int32)
        x = (spine[..., 1, None] - side[..., 0, None] * t).astype(np.int32)
        keep = sticks[lineage[some]].reshape(y.shape) & (y >= 0) & (y < m) & (x >= 0) & (x < m)
        kept = np.flatnonzero(keep)
        # where strokes cross, assignment keeps the last, topmost one
        winner[(y.ravel()[kept] * m + x.ravel()[kept])] = kept + first * rows * columns
    painted = np.flatnonzero(winner >= 0)
    stroke, sample = np.divmod(winner[painted], rows * columns)
    pattern = lineage[stroke]
    on.colour.reshape(-1, 3)[painted] = colours[stroke] + streaks[pattern, sample][:, None]
    relief = on.relief.reshape(-1)
    relief[painted] = 0.35 * relief[painted] + heights[pattern, sample]


def scatter(rng: Generator, brush: Brush, coverage: float, density: Array | None = None) -> Array:
    """Return centres that cover the picture ``coverage`` times: a jittered grid in random order, thinned by ``density``."""
    count = max(1, coverage * SCALE**2 / (brush.length * brush.width))
    side = int(np.ceil(np.sqrt(count)))
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1).reshape(-1, 2)
    centres = (grid + rng.uniform(0, 1, grid.shape)) / side * 1.06 - 0.03
    centres = rng.permutation(centres)
    if density is not None:
        centres = centres[rng.uniform(0, 1, len(centres)) < at(density, centres)]
    return centres.astype(np.float32)


def strokes(
    on: Canvas, rng: Generator, brush: Brush, flow: Array, picture: Array, coverage: float = 2,
    density: Array | None = None, value: float = 0.05, hue: float = 0.03,
) -> None:  # fmt: skip
    """Cover the canvas with strokes in the colours of a picture ``(n, n, 3)``, slightly varied."""
    centres = scatter(rng, brush, coverage, density)
    lay(on, rng, brush, flow, centres, jitter(at(picture, centres), rng, value, hue))


def lit(on: Canvas, relief: float = 0.1, gloss: float = 0.0) -> Canvas:
    """Light the canvas from the upper left, so thick paint gets light and dark edges; ``gloss`` adds highlights."""
    dy, dx = np.gradient(on.relief)
    slope = np.clip(dx + dy, -1.5, 1.5)
    colour = on.colour * (1 + relief * slope)[..., None] + (gloss * np.clip(slope - 0.25, 0, 1))[..., None]
    return Canvas(colour.astype(np.float32), on.relief)


def picture(on: Canvas | Array) -> Array:
    """Return the canvas as a picture ``(3, size, size)`` in [0, 1]."""
    colour = on.colour if isinstance(on, Canvas) else on
    size = colour.shape[0] // OVERSAMPLING
    colour = colour.reshape(size, OVERSAMPLING, size, OVERSAMPLING, 3).mean((1, 3))
    return np.ascontiguousarray(np.clip(colour, 0, 1).transpose(2, 0, 1), np.float32)


def printed(colour: Array, rng: Generator, fibre: float = 0.02, worn: float = 0.03) -> Array:
    """Simulate ink on paper: fibres, grain of the wood block, and gaps in the ink."""
    m = colour.shape[0]
    fibres = noise(m, rng, (300, 60), 2) * 0.6 + noise(m, rng, 200, 2) * 0.6
    patches = noise(m, rng, 9, 4)
    return (
        colour * (1 + fibre * fibres)[..., None] + (worn * np.clip(patches, 0, 2) * (1 + fibres) * 0.5)[..., None]
    ).astype(np.float32)
