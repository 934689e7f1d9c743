"""Pictures made of pieces: a mosaic, a stained-glass window and cubist facets."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .brush import OVERSAMPLING, Brush, canvas, lit, picture, strokes
from .fields import Array, along, at, dye, inks, jitter, noise, over, ramp, square, step, towards

Labels = NDArray[np.int64]


def _chebyshev(dy: Array, dx: Array, axis: Array) -> Array:
    """Return distances whose unit circle is a square aligned with ``axis``."""
    return np.maximum(np.abs(dy * axis[..., 0] + dx * axis[..., 1]), np.abs(dy * axis[..., 1] - dx * axis[..., 0]))


def _nearest(m: int, sites: Array, axes: Array | None) -> tuple[Labels, Array]:
    """Return the nearest site of every pixel and the gap to the second nearest; ``sites`` and ``axes`` are ``(k, k, 2)``.

    With axes, each site measures distances along its own axis, so cells become tiles along a flow. Site (i, j) is near the
    centre of cell (i, j) of a grid, so nine candidates are enough.
    """
    k = sites.shape[0]
    y, x = square(m)
    row, column = np.minimum((y * k).astype(np.int64), k - 1), np.minimum((x * k).astype(np.int64), k - 1)
    best = np.full((m, m), np.inf, np.float32)
    second, label = best.copy(), np.zeros((m, m), np.int64)
    for i in (-1, 0, 1):
        for j in (-1, 0, 1):
            near = np.clip(row + i, 0, k - 1) * k + np.clip(column + j, 0, k - 1)
            dy, dx = y - sites[..., 0].ravel()[near], x - sites[..., 1].ravel()[near]
            distance = np.hypot(dy, dx) if axes is None else _chebyshev(dy, dx, axes.reshape(-1, 2)[near])
            fresh = near != label
            second = np.where(fresh, np.minimum(second, np.maximum(best, distance)), second)
            closer = distance < best
            best, label = np.where(closer, distance, best), np.where(closer, near, label)
    return label, second - best


def _tiles(m: int, rng: Generator, k: int, flow: Array, rounds: int = 5) -> tuple[Labels, Array, Array]:
    """Lay about ``k * k`` tiles along a flow and return labels, gaps (0 at the joint) and centres ``(k * k, 2)``."""
    home = np.stack(square(k), -1)
    sites = home + rng.uniform(-0.2, 0.2, home.shape).astype(np.float32) / k
    coarse = 5 * k
    points = np.stack(square(coarse), -1).reshape(-1, 2)
    for _ in range(rounds):  # Lloyd's algorithm
        label, _ = _nearest(coarse, sites, at(flow, sites))
        count = np.bincount(label.ravel(), minlength=k * k)[:, None]
        sums = np.stack([np.bincount(label.ravel(), points[:, c], k * k) for c in (0, 1)], -1)
        middles = np.where(count > 0, sums / np.maximum(count, 1), sites.reshape(-1, 2)).reshape(k, k, 2)
        sites = np.clip(middles, home - 0.6 / k, home + 0.6 / k).astype(np.float32)
    label, gap = _nearest(m, sites, at(flow, sites))
    return label, gap * k, sites.reshape(-1, 2)


def mosaic(size: int, rng: Generator) -> Array:
    """Fish in a sea of stone tesserae that follow the outlines, under a golden sun."""
    n, m = size, OVERSAMPLING * size
    y, x = square(n)
    sun = np.hypot(y - 0.2, x - rng.uniform(0.6, 0.75))
    rays = 0.5 + 0.5 * np.cos(10 * np.arctan2(y - 0.2, x - 0.68))
    scene = ramp(np.clip(sun / 0.75, 0, 1) ** 0.8, "fff2c0 f0c24b d9a441 c98a3a b5653a 8a3f2c")
    scene = over(scene, dye("f7dc8a"), 0.55 * rays * step(0.55, 0.16, sun))
    scene = over(scene, ramp(sun / 0.13, "fff6d6 f6c945 d8642a 7c2a1e"), step(0.132, 0.126, sun))
    level = sun
    crest = 0.46 + 0.035 * np.sin(11 * x + rng.uniform(0, 6)) + 0.015 * np.sin(23 * x)
    depth = y - crest
    sea = step(-0.003, 0.003, depth)
    bands = np.mod(depth * 8.5 + 0.15 * np.sin(7 * x), 1)
    water = ramp(depth / 0.55 + 0.28 * (bands - 0.5), "d9efe3 74c2bd 2f93a8 1f6a9c 1b3f7a 14224f")
    scene = over(scene, water, sea)
    scene = over(scene, dye("f4efe0"), step(0.016, 0.01, np.abs(depth - 0.008)))
    level = np.where(depth > 0, depth, level)
    for cy, cx, turn, codes in (
        (0.66, 0.32, 1, "fbe3b0 e8893a c43f2a 7a1f24"),
        (0.84, 0.68, -1, "f6efd9 e3b04b a06a2a 5a2f2a"),
    ):
        cx += rng.uniform(-0.05, 0.05)
        u, v = turn * (x - cx) / 0.22, (y - cy - 0.02 * np.sin(9 * x)) / 0.085
        body = u**2 + np.abs(v) ** 1.6 - 1
        tail = np.maximum(np.abs(v) - 1.1 * np.clip(-u - 0.82, 0, 1) * 2.4 - 0.05, np.maximum(-u - 1.42, u + 0.8))
        fish = np.minimum(body, 2 * tail)
        scales = np.clip(0.5 + 0.38 * v + 0.22 * np.sin(14 * u), 0, 1)
        scene = over(scene, dye("12182e"), step(0.3, 0.22, fish))
        scene = over(scene, ramp(scales, codes), step(0.04, -0.04, fish))
        eye = np.hypot(u - 0.66, 0.45 * (v + 0.25))
        scene = over(over(scene, dye("fffbe8"), step(0.13, 0.11, eye)), dye("12182e"), step(0.06, 0.05, eye))
        level = np.where(fish < 0.5, 0.1 * np.maximum(fish, -0.85), level)
    label, gap, sites = _tiles(m, rng, 56, along(level + 0.002 * noise(n, rng, 6, 1)))
    stones = jitter(at(scene, sites), rng, 0.055, 0.03)
    stones += (rng.uniform(0, 1, (len(stones), 1)) < 0.06) * 0.12  # a few bright tesserae
    on = canvas(size, dye("2b2724"))
    edge = step(0.09, 0.2, gap)
    tilt = np.stack(square(m), -1) - sites[label]
    lean = rng.normal(0, 2.2, (len(sites), 2))[label]
    grain = 0.025 * noise(m, rng, 150, 2)
    colour = stones[label] * (1 + (tilt * lean).sum(-1) + grain)[..., None]
    on.colour = over(np.broadcast_to(dye("4a423a"), colour.shape) * (1 + 2 * grain)[..., None], colour, edge)
    on.relief = 3 * step(0.05, 0.4, gap)
    return picture(lit(on, 0.5, 0.05))


def glass(size: int, rng: Generator) -> Array:
    """A rose window: rings of petals in lead, lit from behind, in a wall of smaller panes."""
    m = OVERSAMPLING * size
    y, x = square(m)
    dy, dx = y - 0.5, x - 0.5
    r, turn = np.hypot(dy, dx), np.arctan2(dy, dx) / (2 * np.pi)
    label = np.zeros((m, m), np.int64)
    lead = np.full((m, m), 1.0, np.float32)
    rings = ((0.0, 0.075, 1), (0.075, 0.175, 8), (0.175, 0.295, 16), (0.295, 0.435, 12))
    blues, reds = inks("0f2fa8 1746c9 0b1f7a 2f6fe0 3a1f9c"), inks("c4122f e0252f 9c0f3a f04a2a 7a0f4f")
    golds, greens = inks("f9c22e ffdd66 f29f1f ffe9a0"), inks("0f8f5a 2fb573 0a6b5f 7fcf5a")
    family, count = [golds, reds, blues, reds, golds, greens, blues, blues], 0
    palette: list[Array] = []
    for ring, (inner, outer, petals) in enumerate(rings):
        inside = (r >= inner) & (r < outer)
        angle = np.mod(turn * petals + 0.5 * (ring % 2), 1) - 0.5
        index = np.floor(np.mod(turn * petals + 0.5 * (ring % 2), petals)).astype(np.int64)
        middle = 0.5 * (inner + outer)
        arc = 2 * np.pi * r / petals
        border = np.minimum(np.abs(r - inner) if inner else 1.0, np.abs(r - outer))
        border = np.minimum(border, (0.5 - np.abs(angle)) * arc) if petals > 1 else border
        across = angle * 2 * np.pi * middle / petals
        foil = (
            np.hypot((r - middle) / (0.5 * (outer - inner)), across / (np.pi * middle / petals)) if petals > 1 else r / 0.05
        )
        split = np.abs(foil - 0.72) * 0.42 * (outer - inner)
        part = (foil < 0.72).astype(np.int64)
        lead = np.where(inside, np.minimum(border, split), lead)
        label = np.where(inside, count + 2 * index + part, label)
        for petal in range(petals):
            outerpart, innerpart = family[(2 * ring + 1 + petal % 2) % 8], family[(2 * ring + 4 * (petal % 2)) % 8]
            palette += [outerpart[rng.integers(len(outerpart))], innerpart[rng.integers(len(innerpart))]]
        count += 2 * petals
    k = 13
    home = np.stack(square(k), -1) + rng.uniform(-0.32, 0.32, (k, k, 2)).astype(np.float32) / k
    panes, gap = _nearest(m, home.astype(np.float32), None)
    wall = r >= rings[-1][1]
    label = np.where(wall, count + panes, label)
    lead = np.where(wall, np.minimum(0.5 * gap, np.abs(r - rings[-1][1])), lead)
    far = np.hypot(*(home.reshape(-1, 2) - 0.5).T)
    for distance in far:
        some = (greens, blues, blues, golds, reds)[rng.choice(5, p=[0.22, 0.36, 0.2, 0.12, 0.1]) if distance < 0.62 else 1]
        palette.append(some[rng.integers(len(some))])
    colours = jitter(np.stack(palette), rng, 0.03, 0.03)
    streaks = noise(m, rng, (7, 50), 3) * 0.6 + noise(m, rng, 34, 3) * 0.6
    light = 1.25 - 0.8 * r + 0.12 * noise(m, rng, 3, 2) + 0.13 * streaks
    glow = np.clip(lead / 0.03, 0, 1) ** 0.6
    shine = colours[label] * (0.5 + 0.62 * glow * light)[..., None]
    shine += (0.2 * glow**2 * np.clip(light - 0.75, 0, 1))[..., None]  # brighter in the centre of a pane
    width = 0.0042 + 0.0035 * (np.abs(r - rings[-1][1]) < 0.012) + 0.002 * (np.abs(r - 0.175) < 0.006)
    metal = step(0.0012, -0.0012, lead - width)
    bars = dye("15131a") * (1 + 1.6 * np.clip(1 - np.abs(lead) / width, 0, 1))[..., None]
    on = canvas(size, dye("000000"))
    on.colour = over(shine, bars, metal).astype(np.float32)
    on.relief = (0.25 * streaks * (1 - metal) + 1.5 * metal * np.clip(1 - lead / width, 0, 1)).astype(np.float32)
    return picture(lit(on, 0.35))


def _facets(n: int, rng: Generator) -> tuple[Labels, Array, Array]:
    """Fold the square repeatedly and return labels, distances to the nearest crease, and normals of the last creases."""
    y, x = square(n)
    label = np.zeros((n, n), np.int64)
    crease = np.full((n, n), 1.0, np.float32)
    normal = np.zeros((1, 2), np.float32)
    for fold in range(7):
        cells, (cy, cx), area = _middles(label)
        angle = rng.choice([0.3, 1.15, 1.8, 2.7, -0.55], cells) + rng.normal(0, 0.15, cells)
        angle = np.where(fold == 0, 0.9, angle)
        split = np.stack([np.sin(angle), np.cos(angle)], -1)
        offset = split[:, 0] * cy + split[:, 1] * cx + np.sqrt(area) * rng.uniform(-0.18, 0.18, cells)
        side = split[label, 0] * y + split[label, 1] * x - offset[label]
        big = (area > 1 / 140)[label]
        crease = np.where(big, np.minimum(crease, np.abs(side)), crease)
        normal = np.repeat(split, 2, 0).astype(np.float32)
        label = 2 * label + (big & (side > 0))
    return label, crease, normal


def _middles(label: Labels) -> tuple[int, tuple[Array, Array], Array]:
    """Return the number of cells, their centres (y, x) and the shares of the square that they cover."""
    y, x = square(label.shape[0])
    cells = int(label.max()) + 1
    count = np.maximum(np.bincount(label.ravel(), minlength=cells), 1)
    cy, cx = ((np.bincount(label.ravel(), axis.ravel(), cells) / count).astype(np.float32) for axis in (y, x))
    return cells, (cy, cx), (count / label.size).astype(np.float32)


def _still_life(v: Array, u: Array) -> Array:
    """Return the colours of a guitar, a bottle, a cup and a newspaper on a table at points (y, x)."""
    wall = ramp(0.1 + 0.5 * v + 0.5 * np.abs(u - 0.45), "e3d8b8 c2b088 93896a 5f6a68 3c4a56 262c38")
    table = step(-0.002, 0.002, v - 0.74 - 0.12 * (u - 0.5))
    scene = over(wall, ramp((v - 0.7) * 3.2, "c4863f 99592a 5f3419"), table)
    paper = step(0.002, -0.002, np.maximum(np.abs(u - 0.82) - 0.13, np.abs(v - 0.3) - 0.17))
    lines = step(0.1, 0.5, np.cos(2 * np.pi * v / 0.03)) * step(0.1, 0.095, np.abs(u - 0.82))
    scene = over(scene, over(np.broadcast_to(dye("efe6cf"), scene.shape), dye("2f2b28"), 0.85 * lines), paper)
    bottle = np.maximum(np.abs(u - 0.17) - 0.03 - 0.06 * step(0.24, 0.36, v), np.abs(v - 0.45) - 0.36)
    scene = over(scene, dye("11110f"), step(0.008, 0.005, bottle))
    scene = over(scene, ramp((u - 0.08) * 5.5, "b5c4a8 4f7a66 1f4540 0f2423 5f8a78"), step(0.002, -0.002, bottle))
    label = np.maximum(np.abs(u - 0.17) - 0.09, np.abs(v - 0.58) - 0.08)
    scene = over(scene, dye("d9b25a"), step(0.002, -0.002, np.maximum(label, bottle)))
    p, q = 0.72 * (u - 0.5) + 0.69 * (v - 0.56), -0.69 * (u - 0.5) + 0.72 * (v - 0.56)  # along and across the guitar
    neck = np.maximum(np.abs(q) - 0.027, np.maximum(-p - 0.62, p + 0.1))
    hips = np.minimum(np.hypot(p - 0.14, q) - 0.185, np.hypot(p + 0.1, q) - 0.145)
    body = np.minimum(hips, np.maximum(np.abs(q) - 0.11, np.abs(p - 0.02) - 0.14))
    scene = over(scene, dye("19130f"), step(0.012, 0.008, np.minimum(body, neck)))
    scene = over(scene, ramp(0.5 + 2.3 * q, "f6e2a8 e6b054 c07a30 7f4519"), step(0.002, -0.002, body))
    hole = np.hypot(p + 0.02, q)
    scene = over(scene, ramp(hole / 0.085, "0f0d0c 161210 241a14 e9d5a4 4a2f1a"), step(0.085, 0.082, hole))
    scene = over(scene, dye("33211a"), step(0.002, -0.002, neck))
    strings = step(0.75, 0.95, np.cos(2 * np.pi * q / 0.012)) * step(0.027, 0.022, np.abs(q)) * step(0.2, 0.19, p)
    scene = over(scene, dye("f3ead0"), strings)
    return over(scene, dye("19130f"), step(0.002, -0.002, np.maximum(np.abs(p - 0.2) - 0.013, np.abs(q) - 0.07)))


def cubist(size: int, rng: Generator) -> Array:
    """A still life with a guitar, seen from many sides: shaded facets in ochre, umber and slate."""
    on = canvas(size, dye("808080"))
    y, x = square(on.side)
    label, crease, normal = _facets(on.side, rng)
    cells, (cy, cx), area = _middles(label)
    # every facet shows the still life from another viewpoint
    turn, zoom = rng.normal(0, 0.2, cells), rng.uniform(0.8, 1.15, cells)
    dy, dx = y - cy[label], x - cx[label]
    cosine, sine = (zoom * np.cos(turn)).astype(np.float32), (zoom * np.sin(turn)).astype(np.float32)
    away = rng.normal(0, 0.022, (2, cells)).astype(np.float32)
    v = (cy + away[0])[label] + cosine[label] * dy - sine[label] * dx
    u = (cx + away[1])[label] + sine[label] * dy + cosine[label] * dx
    tint = ramp(rng.uniform(0, 1, cells), "2a3a4c 64788a cdbf98 dba350 87532c efe6cf")[label]
    scene = over(_still_life(v, u), tint, np.full_like(x, 0.2))
    # shading is dark at the last crease, so facets look folded
    slope = (normal[label, 0] * dy + normal[label, 1] * dx) / np.sqrt(area)[label]
    scene *= (1 + 0.8 * np.clip(slope, -0.7, 0.7) * rng.choice([-1, 1], cells)[label])[..., None]
    # the brush adds texture without blurring the edges of the facets
    near = label[::OVERSAMPLING, ::OVERSAMPLING]
    flow = towards(rng.uniform(0, np.pi, cells)[near] + 0.15 * noise(size, rng, 6, 1))
    grey = np.full((size, size, 3), 0.5, np.float32)
    strokes(on, rng, Brush(30, 9, dry=0.5, streak=0.1), flow, grey, 1.5, value=0.06, hue=0.02)
    strokes(on, rng, Brush(16, 5, dry=0.5, streak=0.1), flow, grey, 1.6, value=0.06, hue=0.02)
    pressed = np.clip(0.5 + 0.45 * noise(on.side, rng, 12, 2), 0, 1)
    scene = over(scene, dye("15110e"), step(0.003, 0.0014, crease) * pressed)
    on.colour = np.clip(scene, 0, 1) * (0.25 + 1.5 * on.colour) + 0.25 * (on.colour - 0.5)
    return picture(lit(on, 0.22))
