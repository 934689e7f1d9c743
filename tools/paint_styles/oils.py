"""Oil paintings: a composition, painted with large and then smaller brushes along a flow."""

import numpy as np
from numpy.random import Generator

from .brush import Brush, canvas, lit, picture, strokes
from .fields import Array, along, dye, noise, over, ramp, square, step, towards, unit


def starry(size: int, rng: Generator) -> Array:
    """A night sky in swirls of blue and yellow, over hills and a cypress."""
    y, x = square(size)
    # the flow of the sky circles around two eddies and every star
    flow = towards(0.25 * np.sin(5 * x + rng.uniform(0, 6)) + 0.15 * noise(size, rng, 3, 1))
    phase = 9 * y + 1.2 * noise(size, rng, 3, 2)
    eddies = [
        (rng.uniform(0.3, 0.42), rng.uniform(0.38, 0.52), 0.2, 1),
        (rng.uniform(0.42, 0.5), rng.uniform(0.68, 0.78), 0.12, -1),
    ]
    for cy, cx, radius, turn in eddies:
        dy, dx = y - cy, (x - cx) * 0.85
        r = np.hypot(dy, dx)
        weight = np.exp(-((r / radius) ** 3))
        spin = turn * unit(np.stack([dx, -dy], -1)) - 0.35 * unit(np.stack([dy, dx], -1))
        flow = unit(flow * (1 - weight)[..., None] + spin * weight[..., None])
        phase = phase * (1 - weight) + (60 * r + turn * np.arctan2(dy, dx)) * weight
    tone = 0.5 + 0.32 * np.sin(2.2 * phase) + 0.16 * noise(size, rng, 8, 2)
    sky = ramp(0.8 * tone + 0.1 - 0.25 * (0.5 - y), "0a1540 14307a 1f4fa3 3f7fc4 7fb2d8 c4d8d0")
    moon = (0.14, 0.85, 0.08)
    heights = rng.permutation([0.06, 0.2, 0.11, 0.3, 0.07, 0.17])
    stars = [
        (h + rng.uniform(-0.03, 0.03), 0.2 + 0.1 * i + rng.uniform(-0.03, 0.03), rng.uniform(0.022, 0.036))
        for i, h in enumerate(heights)
    ]
    for cy, cx, radius in (*stars, (0.52, 0.25, 0.04), moon):
        dy, dx = y - cy, x - cx
        r = np.hypot(dy, dx) / radius
        ring = np.exp(-((r / 1.9) ** 4))
        glow = ramp(r / 2, "fff6c8 ffe27a f5c33b f2d76a d9e0a0 9fc7c4 5d9acb")
        sky = over(sky, glow, ring * (0.75 + 0.25 * np.cos(7 * r)))
        flow = unit(flow * (1 - ring)[..., None] + unit(np.stack([dx, -dy], -1)) * ring[..., None])
    crest = 0.72 + 0.07 * np.sin(4 * x + 1) + 0.03 * np.sin(11 * x + rng.uniform(0, 6))
    hill = step(-0.004, 0.004, y - crest)
    depth = (y - crest) / 0.3
    furrows = 0.5 + 0.5 * np.sin(16 * depth + 4 * np.sin(5 * x)) * (1 - 0.4 * depth)
    sky = over(sky, ramp(furrows, "0b1b3a 16405f 1f6a78 5d9a6b b9b35c"), hill)
    flow = unit(flow * (1 - hill)[..., None] + along(depth + 0.08 * noise(size, rng, 4, 1)) * hill[..., None])
    trunk = 0.13 + 0.02 * np.sin(9 * y)
    width = 0.085 * np.clip((y - 0.12) / 0.8, 0, 1) ** 0.75 * (1 + 0.28 * np.sin(26 * y + 12 * (x - trunk)))
    flame = step(0, 0.012, width - np.abs(x - trunk))
    tree = ramp(0.5 + 0.5 * np.sin(90 * (x - trunk) + 9 * y), "07120f 12261a 23402a 4a4a24 6d3f1c")
    sky = over(sky, tree, flame)
    flow = unit(flow * (1 - flame)[..., None] + towards(np.pi / 2 + 0.5 * np.sin(14 * y + 20 * x)) * flame[..., None])
    on = canvas(size, over(sky, dye("12265c"), np.full_like(x, 0.25)))
    strokes(on, rng, Brush(70, 15, dry=0.3), flow, sky, 1.8, hue=0.02)
    strokes(on, rng, Brush(40, 7.5, dry=0.45, streak=0.1), flow, sky, 2.2, value=0.08, hue=0.035)
    strokes(on, rng, Brush(24, 4.6, dry=0.4, streak=0.08), flow, np.clip(1.12 * sky, 0, 1), 0.8, value=0.09, hue=0.04)
    hearts = np.zeros_like(x)
    for cy, cx, radius in (*stars, moon):
        hearts = np.maximum(hearts, step(0.55, 0.4, np.hypot(y - cy, x - cx) / radius))
    strokes(on, rng, Brush(9, 5, dry=0.1, body=1.4), towards(9 * y), over(sky, dye("fffbe0"), hearts), 3, hearts)
    return picture(lit(on, 0.3, 0.08))


def fauve(size: int, rng: Generator) -> Array:
    """Trees by the water in bold, unmixed colours: orange ground, pink sky, turquoise shadows."""
    y, x = square(size)
    wobble = noise(size, rng, 5, 2)
    scene = ramp(y / 0.45 + 0.1 * wobble, "f7b32b ff8c61 f66d8f f9a8c4 ffe0a3")
    flow = towards(0.35 * noise(size, rng, 3, 1))
    horizon = 0.42 + 0.015 * noise(size, rng, 4, 1)
    for depth, codes in ((0.0, "5a3fa0 3d5bc9 7a4fb5"), (0.07, "1d8f8a 2bb5a0 146b8f"), (0.15, "f0531c f98b2a e83a3a")):
        edge = horizon + depth + 0.06 * np.sin((4 + 10 * depth) * x + rng.uniform(0, 6))
        land = step(-0.004, 0.004, y - edge)
        scene = over(scene, ramp(0.5 + 0.3 * noise(size, rng, 6, 2), codes), land)
        flow = unit(over(flow, along(y - edge + 0.03 * wobble), land))
    bend = 0.5 + 0.16 * np.sin(5 * y + rng.uniform(0, 2))
    river = step(0.01, -0.01, np.abs(x - bend) - 0.42 * (y - 0.56)) * step(0.55, 0.57, y)
    scene = over(scene, ramp(0.5 + 0.5 * np.sin(60 * y + 2 * wobble), "1746a2 2f8fd0 52d1c6 fbe9a0"), river)
    flow = unit(over(flow, towards(0.1 * wobble), river))
    for cx, base, lean, girth in (
        (0.12, 0.93, 0.05, 0.03),
        (0.3, 0.72, -0.04, 0.02),
        (0.83, 0.97, -0.07, 0.034),
        (0.68, 0.7, 0.03, 0.017),
    ):
        top = base - 19 * girth
        trunk = cx + lean * np.sin(6 * (y - base)) + rng.uniform(-0.03, 0.03)
        stem = step(0.003, -0.003, np.abs(x - trunk) - girth * (0.5 + 0.55 * (y - top) / (base - top)))
        stem = stem * step(top, top + 0.02, y) * step(base + 0.01, base - 0.01, y)
        crown = step(0.01, -0.01, np.hypot((y - top - 0.03) / 0.8, x - trunk) - 5.2 * girth - 0.014 * wobble)
        shade = np.clip((x - trunk) / (9 * girth) + 0.5 + 0.16 * noise(size, rng, 12, 2), 0, 1)
        scene = over(scene, ramp(shade, "f6e04b 8ecb3a 1f9a4e 0b6e6e 27327f"), crown)
        flow = unit(over(flow, along(np.hypot(y - top - 0.03, x - trunk) + 0.02 * wobble), crown))
        scene = over(scene, ramp((x - trunk) / girth / 2 + 0.5, "e8262c c2185b 2a1a6e"), stem)
        flow = unit(over(flow, towards(np.pi / 2 + 0 * x), stem))
    on = canvas(size, dye("fbe6c0"))
    strokes(on, rng, Brush(74, 26, dry=0.35, streak=0.07), flow, scene, 1.3, value=0.04, hue=0.05)
    strokes(on, rng, Brush(44, 14, dry=0.5, streak=0.08), flow, scene, 1.1, value=0.05, hue=0.07)
    strokes(on, rng, Brush(26, 8, dry=0.5, streak=0.08), flow, scene, 1.2, value=0.06, hue=0.06)
    return picture(lit(on, 0.22, 0.04))


def autumn(size: int, rng: Generator) -> Array:
    """Birches by a pond in autumn, with a palette knife: thick flat slabs with sharp ridges."""
    y, x = square(size)
    shore = 0.6
    mirror = np.where(y < shore, y, 2 * shore - y - 0.02)
    blobs = noise(size, rng, 7, 3)
    rows = np.clip(((2 * shore - 0.02 - y) * size).astype(int), 0, size - 1)  # reflection below the shore
    blobs = np.where(y < shore, blobs, blobs[rows[:, 0]])
    leaves = ramp(0.5 + 0.2 * blobs + 0.35 * (mirror - 0.35), "f9d056 f2a21b e8711a c43d16 8c1c13 4a1a1f 2a2430")
    light = step(0.5, 0.0, mirror) * step(-0.6, 0.9, -blobs)
    scene = over(leaves, ramp(mirror * 2, "a9d3dc d8e3cf f6e3a8"), light)
    flow = towards(np.pi / 2 + 0.9 * noise(size, rng, 5, 2))
    for i in range(8):
        cx, girth = (i + rng.uniform(0.2, 0.8)) / 8, rng.uniform(0.006, 0.017)
        stem = step(0.004, -0.002, np.abs(x - cx - 0.03 * np.sin(5 * mirror + i)) - girth * (0.5 + mirror))
        bark = ramp((x - cx) / girth / 3 + 0.5 + 0.3 * noise(size, rng, (40, 4), 1), "fffaf0 e6dccb 8b7f86 2c2630")
        scene = over(scene, bark, stem)
        flow = unit(over(flow, towards(np.pi / 2 + 0.1 * blobs), stem))
    pond = step(shore - 0.01, shore + 0.01, y)
    ripple = step(0.4, 1.2, noise(size, rng, (26, 3), 2) + 1.5 * (y - 0.8))
    water = over(0.85 * scene + 0.03, ramp(0.5 + 0.3 * blobs, "17485f 2f7f93 8fc0c4"), 0.1 + 0.75 * ripple)
    scene = over(scene, water, pond)
    bank = np.exp(-(((y - shore + 0.01 * noise(size, rng, 9, 2)) / 0.016) ** 2))
    scene = over(scene, ramp(0.5 + 0.3 * blobs, "2c1a12 6e3b14 b8741a"), bank)
    flow = unit(over(flow, towards(0.12 * blobs), np.maximum(pond, bank)))
    on = canvas(size, dye("5b2a16"))
    strokes(on, rng, Brush(46, 24, dry=0.4, tip="flat", body=1.6), flow, scene, 1.6, value=0.06, hue=0.04)
    strokes(on, rng, Brush(28, 12, dry=0.5, tip="flat", body=1.5), flow, scene, 1.6, value=0.07, hue=0.05)
    strokes(on, rng, Brush(16, 6, dry=0.5, tip="flat", body=1.3), flow, scene, 0.9, value=0.08, hue=0.05)
    return picture(lit(on, 0.33, 0.12))


def lilies(size: int, rng: Generator) -> Array:
    """A pond with water lilies: violet and green reflections, pads in ellipses, touches of pink."""
    y, x = square(size)
    sky = noise(size, rng, (3, 6), 3)
    willow = noise(size, rng, (2, 14), 2)
    scene = ramp(0.5 + 0.2 * sky + 0.3 * (0.5 - y), "23406e 3f6fa0 6f9fc0 a7b3d9 d5c3df f2d9d0")
    leaves = 0.9 * step(0.1, 1.3, willow + 0.9 * (0.4 - y))
    scene = over(scene, ramp(0.5 + 0.25 * sky, "12352f 275c41 4f8a4c 86ae62"), leaves)
    flow = towards(np.pi / 2 + 0.12 * sky)
    pads = np.zeros_like(y)
    for _ in range(30):
        cy = rng.uniform(0.12, 1.0) ** 0.8
        cx, wide = rng.uniform(-0.05, 1.05), 0.03 + 0.085 * cy * rng.uniform(0.6, 1.2)
        r = np.hypot((y - cy) / 0.36, x - cx) / wide
        pad = step(1.0, 0.88, r + 0.07 * sky)
        tint = ramp(0.5 * r + 0.25 * (x - cx) / wide + 0.2, "d8e08a 9cc56a 5fa66a 2f7f72 2a5a78")
        scene = over(scene, dye("1c2f55"), 0.6 * step(1.1, 0.9, np.hypot((y - cy - 0.16 * wide) / 0.36, x - cx) / wide))
        scene = over(scene, tint, pad)
        pads = np.maximum(pads, pad)
        flow = unit(over(flow, along(r), step(1.3, 0.9, r)))
    scene = over(scene, scene * 0.9 + 0.06, 1 - pads)
    on = canvas(size, dye("4a6f8f"))
    strokes(on, rng, Brush(60, 16, dry=0.4, streak=0.08), flow, scene, 1.8, value=0.05, hue=0.05)
    strokes(on, rng, Brush(34, 8, dry=0.6, streak=0.08), flow, scene, 1.6, value=0.07, hue=0.06)
    strokes(on, rng, Brush(18, 4.5, dry=0.6, streak=0.08), flow, scene, 0.9, value=0.08, hue=0.06)
    blossom = step(1.15, 1.5, noise(size, rng, 11, 1)) * step(0.2, 0.8, pads) * step(0.1, 0.25, y)
    pinks = ramp(0.5 + 0.35 * noise(size, rng, 60, 1), "b8336a e26d9f f7b6cb fff1ee ffd75e")
    strokes(on, rng, Brush(12, 6, dry=0.2, body=2), towards(0.9 * noise(size, rng, 20, 1)), pinks, 2.5, blossom)
    return picture(lit(on, 0.25, 0.05))


def pointillism(size: int, rng: Generator) -> Array:
    """A sunny river bank in dots, with complementary colours in the shadows."""
    y, x = square(size)
    soft = noise(size, rng, 4, 2)
    scene = ramp(y / 0.36, "6fa8dc a8cbe8 f3dfc0 fbd8a0")
    far = step(-0.01, 0.01, y - 0.34 - 0.03 * np.sin(7 * x + rng.uniform(0, 6)) - 0.012 * noise(size, rng, 14, 2))
    scene = over(scene, ramp(0.5 + 0.25 * soft, "4a6fa5 6f8f9f 88a07a"), far)
    water = step(-0.01, 0.01, y - 0.42)
    scene = over(scene, ramp(0.5 + 0.25 * noise(size, rng, (26, 3), 2), "3a6ea8 6fa3cf a9cbe0 f6e8c0"), water)
    bank = step(-0.01, 0.01, y - 0.95 + 0.62 * x + 0.03 * np.sin(8 * x))
    lawn = ramp(0.45 + 0.3 * noise(size, rng, (8, 4), 2), "2f5f3a 4f8f3f 9cbf3f e8d85a")
    scene = over(scene, lawn, bank)
    for cx, cy, radius in ((0.8, 0.2, 0.2), (0.56, 0.3, 0.1), (0.98, 0.36, 0.17), (0.12, 0.33, 0.07)):
        cx += rng.uniform(-0.04, 0.04)
        trunk = step(0.004, -0.004, np.abs(x - cx - 0.01 * np.sin(20 * y)) - 0.08 * radius)
        trunk = trunk * step(cy, cy + 0.02, y) * step(cy + 2.1 * radius, cy + 2.05 * radius, y)
        scene = over(scene, dye("3b2a4f"), trunk)
        shadow = step(1.1, 0.8, np.hypot((y - cy - 2.1 * radius) / 0.22, x - cx + 0.25 * radius) / radius)
        scene = over(scene, dye("24356f"), 0.75 * shadow * bank)
        r = np.hypot(y - cy, x - cx) / radius + 0.12 * noise(size, rng, 9, 2)
        shade = np.clip(0.45 + 0.5 * ((x - cx) + (y - cy)) / radius + 0.12 * soft, 0, 1)
        scene = over(scene, ramp(shade, "f6dc4f b7c93f 5c9f3f 2a6b4f 2b2f6f"), step(1.02, 0.9, r))
    for _ in range(5):
        cx, cy = rng.uniform(0.05, 0.5), rng.uniform(0.45, 0.62)
        sail = step(0, 0.01, 0.04 - np.abs(x - cx) * 2.2 - np.clip(y - cy, 0, 1))
        sail = sail * step(cy - 0.09, cy - 0.08, y - np.abs(x - cx) * 2) * step(cy + 0.01, cy, y)
        scene = over(scene, dye("fff4dc"), sail)
    on = canvas(size, dye("efe3c8"))
    sun = dye("ffcf5a") - dye("2f4fb0")
    for diameter, coverage, spread in ((11, 1.5, 0.07), (8, 1.7, 0.1), (6, 1.5, 0.13)):
        warm = noise(size, rng, 90, 1)[..., None] * sun * 0.14
        dots = np.clip(scene + warm, 0, 1)
        complement = np.clip(0.55 * dots + 0.55 * (dots.mean(-1, keepdims=True) * 2 - dots) + 0.08, 0, 1)
        dots = np.where(rng.uniform(0, 1, (size, size, 1)) < 0.13, complement, dots).astype(np.float32)
        brush = Brush(diameter * 1.05, diameter, dry=0.05, streak=0.03)
        strokes(on, rng, brush, towards(3 * soft), dots, coverage, value=0.04, hue=spread)
    return picture(lit(on, 0.16))
