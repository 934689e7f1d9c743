"""Woodblock prints: a wave in flat colours, and a landscape in cut lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter

from .brush import OVERSAMPLING, picture, printed
from .fields import Array, dye, inks, noise, over, ramp, square, step

NAVY, DEEP, BLUE, PALE, FOAM = inks("16264a 1f3f73 3a6ea5 9cc0cf f6f1e1")
STRIPES = (  # stripes of the great wave, from its face (0) to its back (1)
    (0.0, 0.07, NAVY), (0.12, 0.2, PALE), (0.24, 0.36, DEEP), (0.4, 0.47, FOAM),
    (0.51, 0.62, DEEP), (0.67, 0.72, PALE), (0.76, 0.86, NAVY), (0.9, 0.94, PALE),
)  # fmt: skip


def spline(points: Sequence[tuple[float, float]], count: int = 80) -> Array:
    """Return a smooth curve (Catmull-Rom) ``(count, 2)`` through points (y, x)."""
    knots = np.array(points, np.float32)
    knots = np.concatenate([2 * knots[:1] - knots[1:2], knots, 2 * knots[-1:] - knots[-2:-1]])
    t = np.linspace(0, len(points) - 1 - 1e-4, count)
    i, f = t.astype(int), (t % 1)[:, None]
    a, b, c, d = (knots[i + k] for k in range(4))
    return (b + 0.5 * f * (c - a + f * (2 * a - 5 * b + 4 * c - d + f * (3 * (b - c) + d - a)))).astype(np.float32)


def _mask(m: int, shapes: Sequence[Array]) -> Image.Image:
    image = Image.new("L", (m, m))
    draw = ImageDraw.Draw(image)
    for points in shapes:
        draw.polygon([(float(x) * m, float(y) * m) for y, x in points], fill=255)
    return image


def _field(mask: Image.Image) -> Array:
    return np.asarray(mask, np.float32) / 255


def _grown(mask: Image.Image, pixels: int) -> Image.Image:
    """Return the mask enlarged by a rim, for its contour line."""
    return mask.filter(ImageFilter.MaxFilter(2 * pixels + 1))


def _disc(centre: Array, radius: float) -> Array:
    turn = np.linspace(0, 2 * np.pi, 22)
    return centre + radius * np.stack([np.sin(turn), np.cos(turn)], -1)


def _claw(rng: Generator, base: Array, heading: float, length: float) -> list[Array]:
    """Return a claw of foam: a narrowing hook that bends down, with two smaller hooks beside it."""
    fingers = []
    for bend, share in ((1.5, 1.0), (2.3, 0.6), (0.6, 0.55)):
        t = np.linspace(0, 1, 12)[:, None]
        angle = heading + bend * t * rng.uniform(0.7, 1.2)
        stride = share * length / 12
        spine = base + np.cumsum(np.concatenate([np.sin(angle), np.cos(angle)], 1) * stride, 0)
        normal = np.concatenate([np.cos(angle), -np.sin(angle)], 1)
        half = 0.2 * share * length * (1 - t) ** 0.7 * (1 + 0.3 * np.sin(9 * t))
        fingers.append(np.concatenate([spine + half * normal, (spine - half * normal)[::-1]]).astype(np.float32))
    return fingers


@dataclass
class _Blocks:
    """A print in progress, made of flat shapes, most of them with a contour."""

    colour: Array

    def put(self, shapes: Sequence[Array] | Image.Image, colour: Array, outline: Array | None = NAVY) -> None:
        m = self.colour.shape[0]
        mask = shapes if isinstance(shapes, Image.Image) else _mask(m, shapes)
        if outline is not None:
            self.colour = over(self.colour, outline, _field(_grown(mask, _line(m))))
        self.colour = over(self.colour, colour, _field(mask))

    def foam(self, shapes: Sequence[Array]) -> Array:
        """Print white foam with a pale lower rim, and return its mask."""
        m = self.colour.shape[0]
        cap = _mask(m, shapes)
        self.put(cap, FOAM)
        above = np.roll(_field(_grown(cap, 1)), (-3 * _line(m), -3 * _line(m)), (0, 1))
        self.colour = over(self.colour, PALE, np.clip(_field(cap) - above, 0, 1))
        return _field(cap)


def _line(m: int) -> int:
    return max(1, round(m / 420))


def _mountain(on: _Blocks, shift: float) -> None:
    """Print a snow-capped mountain behind a swell."""
    y, _ = square(on.colour.shape[0])
    move = np.array([0, shift], np.float32)
    sides = spline([(0.72, 0.5), (0.62, 0.66), (0.55, 0.735), (0.552, 0.785), (0.62, 0.86), (0.74, 1.04)]) + move
    haze = over(np.broadcast_to(BLUE, on.colour.shape), dye("7f97a8"), step(0.55, 0.75, y))
    on.put([np.concatenate([sides, [[0.95, 1.05], [0.95, 0.5]]])], haze)
    top = spline([(0.612, 0.672), (0.552, 0.735), (0.553, 0.785), (0.607, 0.845)])
    teeth = [(0.6, 0.82), (0.64, 0.8), (0.6, 0.785), (0.65, 0.765), (0.6, 0.74), (0.64, 0.715), (0.605, 0.7)]
    on.put([np.concatenate([top, np.array(teeth, np.float32)]) + move], FOAM, None)
    swell = spline([(0.74, 0.3), (0.71, 0.55), (0.76, 0.75), (0.72, 0.92), (0.74, 1.06)])
    for k, colour in enumerate((PALE, BLUE, DEEP)):
        lower = np.array([0.035 * k + 0.01 * k * k, 0], np.float32)
        on.put([np.concatenate([swell + lower, [[1.05, 1.05], [1.05, 0.3]]])], colour)


def _great_wave(on: _Blocks, rng: Generator) -> None:
    """Print the breaking wave: stripes, a crest of foam with claws, and spray."""
    lip = rng.uniform(-0.02, 0.02)
    crest = spline([(0.36, -0.06), (0.22, 0.08), (0.12, 0.23), (0.1 + lip, 0.39), (0.19, 0.53), (0.35, 0.6)])
    trough = [(0.46, 0.355), (0.62, 0.39), (0.75, 0.5), (0.83, 0.68), (0.82, 0.86), (0.77, 1.06)]
    face = spline([(0.35, 0.6), (0.27, 0.5), (0.32, 0.4), *trough], 140)
    depth = [(0.85, -0.02), (1.0, 0.16), (1.05, 0.5), (1.06, 0.8), (1.06, 1.06)]
    back = spline([(0.14, 0.4), (0.16, 0.24), (0.32, 0.02), (0.6, -0.05), *depth], 140)
    on.put([np.concatenate([crest, face, [[1.06, 1.06], [1.06, -0.06]]])], BLUE)
    belly = np.sin(np.linspace(0.15, np.pi - 0.1, 140))[:, None]  # stripes taper at both ends
    for low, high, colour in STRIPES:
        middle = (low + high) / 2
        one, other = (face + (back - face) * (middle + (edge - middle) * belly) for edge in (low, high))
        on.put([np.concatenate([one, other[::-1]])], colour, None if colour is NAVY else NAVY)
    lumps, claws = [], []
    for p, q in pairwise(crest[14:]):
        lumps += [_disc(p + rng.normal(0, 0.012, 2), rng.uniform(0.016, 0.04)) for _ in range(2)]
        inward = np.array([q[1] - p[1], p[0] - q[0]]) / (np.hypot(*(q - p)) + 1e-6)
        lumps.append(_disc(p + inward * rng.uniform(0.01, 0.06), rng.uniform(0.012, 0.03)))
    for p in np.concatenate([crest[30::4], face[2:34:3]]):
        base = p + rng.normal(0, 0.012, 2) + np.array([0.02, 0])
        claws += _claw(rng, base, rng.uniform(0.1, 0.9), rng.uniform(0.06, 0.12))
    for p in crest[18::5]:
        claws += _claw(rng, p + np.array([0.05, -0.01]), rng.uniform(0.8, 1.6), rng.uniform(0.06, 0.1))
    cap = on.foam(lumps + claws)
    m = on.colour.shape[0]
    curls = _mask(m, [_disc(p + rng.normal(0, 0.03, 2), rng.uniform(0.006, 0.013)) for p in crest[16:]])
    rings = np.clip(_field(_grown(curls, _line(m))) - _field(curls), 0, 1)
    on.colour = over(on.colour, BLUE, rings * cap)


def _near_wave(on: _Blocks, rng: Generator) -> None:
    slope = [(0.86, 0.37), (0.93, 0.5), (0.97, 0.7), (0.93, 0.86), (0.95, 1.06)]
    near = spline([(1.0, -0.06), (0.9, 0.1), (0.8, 0.2), (0.79, 0.28), *slope], 100)
    on.put([np.concatenate([near, [[1.06, 1.06], [1.06, -0.06]]])], DEEP)
    swelling = 0.014 * np.sin(np.linspace(0, np.pi, 100))[:, None] * np.array([1, 0])
    for k, colour in enumerate((PALE, NAVY, BLUE, FOAM)):
        band = near + np.array([0.022 + 0.035 * k, 0], np.float32)
        on.put([np.concatenate([band, (band + swelling)[::-1]])], colour, None)
    lumps = [_disc(p + rng.normal(0, 0.009, 2), rng.uniform(0.01, 0.026)) for p in near[16:48] for _ in range(2)]
    claws = [finger for p in near[24:50:3] for finger in _claw(rng, p, rng.uniform(-0.2, 0.8), rng.uniform(0.04, 0.08))]
    on.foam(lumps + claws)


def wave(size: int, rng: Generator) -> Array:
    """A great wave with claws of foam over a far mountain, in Prussian blue and cream."""
    m = OVERSAMPLING * size
    y, _ = square(m)
    sky = ramp(y / 0.75, "c9b48c dcc89c ecdcb8 f1e6ca d9cfb4")
    on = _Blocks(over(sky, dye("8f8f8a"), 0.55 * step(0.2, -0.05, y + 0.03 * noise(m, rng, 3, 2))))
    _mountain(on, rng.uniform(-0.06, 0.05))
    _great_wave(on, rng)
    _near_wave(on, rng)
    spray = [_disc(rng.normal((0.28, 0.63), (0.13, 0.08)), rng.uniform(0.002, 0.006)) for _ in range(90)]
    spray += [_disc(rng.normal((0.74, 0.3), (0.04, 0.1)), rng.uniform(0.002, 0.005)) for _ in range(40)]
    on.put(spray, FOAM, dye("6f8fa5"))
    return picture(printed(on.colour, rng, 0.022, 0.02))


def woodcut(size: int, rng: Generator) -> Array:
    """Black lines cut along the forms: a sun with rays, mountains, firs and water, with one block of vermilion."""
    m = OVERSAMPLING * size
    y, x = square(m)
    wobble = noise(m, rng, 9, 3)
    rough = noise(m, rng, 110, 2)
    cy, cx = 0.3, rng.uniform(0.55, 0.7)
    r, turn = np.hypot(y - cy, x - cx), np.arctan2(y - cy, x - cx)

    def cut(phase: Array, share: Array) -> Array:
        """Return lines at integer phases whose width is a share of the period."""
        return step(-0.05, 0.05, np.abs(np.mod(phase, 1) - 0.5) * 2 - (1 - share) + 0.14 * rough)

    # rays split outwards, so their spacing stays even
    octave = np.clip(np.log2(r / 0.12), 0, 3)
    rays = 44 * 2 ** np.floor(octave)
    ink = cut(rays * turn / (2 * np.pi) + 0.12 * wobble, np.clip(0.3 + 0.55 * r + 0.1 * np.sin(40 * r + wobble), 0, 0.8))
    disc = step(0.105, 0.102, r + 0.001 * rough)
    ink = ink * step(0.118, 0.121, r)
    ranges = ((0.50, 0.13, 30, 0.42), (0.60, 0.12, 38, 0.58), (0.67, 0.06, 46, 0.75))
    for base, rise, lines, share in ranges:
        peaks = np.interp(x[0], np.linspace(0, 1, 8), rng.uniform(-0.5, 1.3, 8)).astype(np.float32)
        ridge = base - rise * peaks + 0.01 * noise(m, rng, (2, 16), 3)[m // 3]
        slope = np.gradient(np.convolve(np.pad(ridge, 40, mode="edge"), np.ones(81) / 81, "valid")) * m
        lit_ = np.clip(0.5 + 0.45 * np.sign(slope) * np.clip(np.abs(slope), 0, 1), 0, 1)[None, :]
        down = y - ridge
        width = np.clip(share - 0.25 + 0.45 * lit_ + 0.5 * down - 0.08 * wobble, 0.08, 0.93)
        face = cut(lines * (x + 0.55 * np.sign(slope)[None, :] * down) + 0.12 * wobble, width)
        inside = step(-0.001, 0.001, down)
        ink = ink * (1 - inside) + face * inside
        ink = np.maximum(ink, step(0.0045, 0.0025, np.abs(down) + 0.0006 * rough))
        disc = disc * (1 - inside)
    lake = step(-0.001, 0.001, y - 0.72)
    ripple = np.log(np.clip(y - 0.66, 0.01, 1)) * 16 + 0.35 * np.sin(22 * x + 5 * wobble) + 0.2 * wobble
    path = np.exp(-(((x - cx) / (0.06 + 0.25 * (y - 0.7))) ** 2))
    ink = ink * (1 - lake) + cut(ripple, np.clip(0.66 - 0.5 * path + 0.12 * wobble, 0.06, 0.9)) * lake
    for i in range(9):
        px = rng.choice([rng.uniform(-0.02, 0.36), rng.uniform(0.8, 1.02)])
        foot, tall = 0.86 + 0.016 * i, rng.uniform(0.22, 0.46)
        t = np.clip((y - foot + tall) / tall, 0, 1)
        branch = np.mod(t * 9 + 0.3 * wobble + 1.2 * np.abs(x - px) / 0.1, 1)
        fir = (0.11 * tall / 0.4 * t * (0.45 + 0.55 * branch) - np.abs(x - px)) + 0.001 * rough
        inside = step(0, 0.002, np.where((t > 0) & (y < foot), fir, -1))
        lighter = 0.4 * np.clip((x - px) * np.sign(cx - px) / 0.04, 0, 1)
        notch = cut(t * 18 + 3 * np.abs(x - px) / 0.1, np.clip(0.97 - lighter, 0.3, 1))
        rim = step(-0.005, -0.003, np.where((t > 0) & (y < foot), fir, -1))
        ink = ink * (1 - rim) + notch * inside
        disc = disc * (1 - rim)
    bank = step(-0.001, 0.001, y - 0.93 + 0.02 * np.sin(7 * x + 1) + 0.004 * wobble)
    ink = ink * (1 - bank) + cut(70 * x + 30 * y + wobble, np.clip(0.82 + 0.1 * wobble, 0.5, 0.97)) * bank
    colour = np.broadcast_to(dye("efe2c4"), (m, m, 3))
    tint = over(np.broadcast_to(dye("d9b98a"), colour.shape), dye("e8d3a4"), step(0.1, 0.6, r))
    colour = over(colour, tint, 0.55 * step(0.75, 0.2, y))
    colour = over(colour, dye("cf3a24"), disc * np.clip(0.93 + 0.06 * rough, 0, 1))
    colour = over(colour, dye("c98a5a"), 0.5 * lake * path)
    taken = np.clip(0.97 - 0.05 * np.clip(noise(m, rng, (160, 12), 2), 0, 3), 0, 1)  # wood grain in the black areas
    colour = over(colour, dye("16130f"), ink * taken)
    return picture(printed(colour, rng, 0.02, 0.012))
