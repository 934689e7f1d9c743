"""Works on paper: watercolour, and chalk on toned paper."""

import numpy as np
from numpy.random import Generator

from .brush import OVERSAMPLING, Brush, Canvas, canvas, lay, picture, scatter
from .fields import Array, dye, inks, noise, over, ramp, resize, square, step, towards


def _wash(below: Array, shape: Array, colour: Array, strength: Array, edge: float, grain: Array) -> Array:
    """Add a transparent layer where the distance ``shape`` is positive, darker at its rim and in the paper's grain."""
    inside = step(-0.0015, 0.0015, shape)
    rim = np.exp(-np.clip(shape, 0, None) / 0.0035) * edge
    density = inside * np.clip(strength * (1 + 0.22 * grain) + rim, 0, 1.6)
    return below * np.clip(colour, 0.02, 1) ** density[..., None]


def watercolour(size: int, rng: Generator) -> Array:
    """Mountains over a lake in transparent washes, with rims, blooms and the grain of the paper."""
    m = OVERSAMPLING * size
    y, x = square(m)
    grain = noise(m, rng, 170, 3)
    edge = noise(m, rng, 14, 5)
    soft, pools = noise(m, rng, 3, 3), noise(m, rng, 6, 4)
    sheet = np.broadcast_to(dye("fbf7ec"), (m, m, 3)) * (1 + 0.012 * grain)[..., None]
    sky = ramp(0.5 + 0.3 * soft + 0.7 * (y - 0.28), "3f7fc9 7fb4e0 e9b7cf f9c58f f7a66a")
    cloud = step(0.2, 1.1, noise(m, rng, (5, 3), 5) - 1.6 * (y - 0.2))
    sheet = _wash(sheet, 0.03 + 0.47 - y + 0.012 * edge, sky, (0.9 + 0.2 * pools) * (1 - 0.85 * cloud), 0.1, grain)
    sun = 0.062 - np.hypot(y - 0.3, x - rng.uniform(0.55, 0.7)) + 0.0025 * edge
    sheet = _wash(sheet, sun, dye("f58a3c"), 0.8 + 0.15 * pools, 0.35, grain)
    shore = 0.6
    for base, rise, codes, strength in (
        (0.44, 0.10, "8fa3d6 b79bd0 d9a9c0", 0.7),
        (0.50, 0.09, "4f79b5 6f6fb5 9a6fa5", 0.85),
        (0.56, 0.07, "2f5f8f 2f7f86 5f5a96", 1.0),
    ):
        ridge = base - rise * np.interp(x[0], np.linspace(0, 1, 9), rng.uniform(-0.6, 1.2, 9)).astype(np.float32)
        ridge = ridge + 0.012 * noise(m, rng, (2, 18), 4)[m // 2]
        tint = ramp(0.5 + 0.32 * noise(m, rng, 4, 2), codes)
        fade = np.clip(1.1 - 1.9 * np.clip(y - ridge, 0, 1) / 0.2, 0.25, 1)  # mist at the foot
        shape = np.minimum(y - ridge, shore - y + 0.003 * edge)
        sheet = _wash(sheet, shape, tint, strength * fade * (0.85 + 0.25 * pools), 0.22, grain)
    lake = np.minimum(y - shore - 0.006, 1.03 - y + 0.02 * edge)
    water = ramp(0.5 + 0.3 * soft[::-1] - 0.8 * (y - 0.75), "1f5f9c 2f8fb5 6fc0c9 d9c0cf f9c9a0")
    dry = step(0.9, 1.3, noise(m, rng, (46, 3), 2) + 0.2 * grain) * step(0.62, 0.8, y)  # dry brush
    sheet = _wash(sheet, lake, water, (0.85 + 0.22 * pools) * (1 - 0.9 * dry), 0.3, grain)
    for depth in (0.03, 0.09, 0.17, 0.26):
        band = 0.004 * noise(m, rng, (2, 5), 3) + 0.05 * depth - np.abs(y - shore - depth - 0.006 * pools)
        sheet = _wash(sheet, band, dye("2a5f96"), np.full((m, m), 0.5, np.float32), 0.25, grain)
    bloom = noise(m, rng, 4, 5)
    front = np.exp(-(((bloom - 1.1) / 0.06) ** 2)) * step(0.1, 0.4, y)
    sheet = sheet * (1 - 0.16 * front)[..., None] ** dye("8f6f5f") + 0.12 * (1 - sheet) * step(1.1, 1.5, bloom)[..., None]
    left = rng.uniform(0, 1) < 0.5
    for i in range(7):  # pines in the foreground
        cx = (0.04 + 0.055 * i + rng.uniform(-0.012, 0.012)) if left else (0.96 - 0.055 * i + rng.uniform(-0.012, 0.012))
        top, foot = 0.42 + 0.045 * i + rng.uniform(-0.05, 0.05), 0.93 - 0.012 * i
        t = np.clip((y - top) / (foot - top), 0, 1)
        saw = 0.6 + 0.4 * np.mod(13 * t + 0.25 * np.sin(40 * x), 1)
        pine = np.minimum(
            0.062 * t**0.8 * saw - np.abs(x - cx) + 0.0035 * edge, np.minimum(y - top, foot - y + 0.008 * edge)
        )
        tint = ramp(0.5 + 0.35 * pools, "173f4a 1f6f5f 5a8f3f b58f2f")
        sheet = _wash(sheet, pine, tint, 0.85 + 0.25 * pools, 0.35, grain)
    bank = y - 0.9 - 0.03 * soft - 0.05 * (x if left else 1 - x)
    tint = ramp(0.5 + 0.32 * noise(m, rng, 7, 3), "2f4f3a 5f8f3a d9a83a c4622f")
    sheet = _wash(sheet, np.minimum(bank, 1.02 - y + 0.01 * edge), tint, 0.95 + 0.2 * pools, 0.35, grain)
    for _ in range(26):  # spatter
        drop = rng.uniform(0.0012, 0.0045) - np.hypot(y - rng.uniform(0.05, 0.98), x - rng.uniform(0, 1))
        sheet = _wash(
            sheet, drop, inks("2f6f8f c4622f 6f5a96")[rng.integers(3)], np.full((m, m), 0.6, np.float32), 0.5, grain
        )
    dy, dx = np.gradient(grain)
    return picture((sheet * (1 + 0.022 * (dx + dy))[..., None]).astype(np.float32))


def _hatch(on: Canvas, rng: Generator, tone: Array, turn: Array, where: Array) -> Canvas:
    """Hatch dark tones with charcoal, in more directions the darker they are, and light tones with chalk, within a mask."""
    n = tone.shape[0]
    sheet = Canvas(on.colour.copy(), on.relief)
    black, white = dye("1b1817"), dye("fdf8ee")
    near = resize(where[:: max(1, n // 64), :: max(1, n // 64)], (n, n)) > 0.01  # start strokes near the mask only
    for threshold, offset, brush in (
        (0.66, 0.0, Brush(40, 1.7, dry=0.5, streak=0.05)),
        (0.50, 0.7, Brush(32, 1.7, dry=0.5, streak=0.05)),
        (0.36, -0.6, Brush(26, 1.9, dry=0.45, streak=0.05)),
        (0.20, 1.4, Brush(20, 2.2, dry=0.4, streak=0.04)),
    ):
        centres = scatter(rng, brush, 1.1, near * step(threshold + 0.06, threshold - 0.14, tone))
        colours = black + rng.uniform(0, 0.2, (len(centres), 1)).astype(np.float32)
        lay(sheet, rng, brush, towards(turn + offset + 0.05 * noise(n, rng, 10, 1)), centres, colours)
    for threshold, brush in ((0.8, Brush(26, 1.9, dry=0.6, streak=0.03)), (0.95, Brush(14, 2.6, dry=0.4, streak=0.02))):
        centres = scatter(rng, brush, 1.1, near * step(threshold - 0.05, threshold + 0.15, tone))
        lay(sheet, rng, brush, towards(turn + 0.12), centres, np.broadcast_to(white, (len(centres), 3)))
    return Canvas(over(on.colour, sheet.colour, resize(where, on.relief.shape).clip(0, 1)), on.relief)


def chalk(size: int, rng: Generator) -> Array:
    """A still life hatched in charcoal on toned paper, heightened with white."""
    y, x = square(size)
    paper = dye("b8997a") * (1 + 0.03 * noise(size, rng, 90, 2) + 0.02 * noise(size, rng, 5, 2))[..., None]
    on = canvas(size, paper.astype(np.float32))
    ground, tooth = on.colour.copy(), noise(on.side, rng, 260, 2)
    table = step(-0.002, 0.002, y - 0.64)
    wall = 0.7 - 0.42 * step(0.1, 0.95, x + 0.25 * (0.6 - y)) + 0.05 * noise(size, rng, 3, 2)
    top = 0.82 - 0.45 * (y - 0.64) - 0.2 * (x - 0.3) + 0.04 * noise(size, rng, 3, 2)
    fold = 0.5 + 0.5 * np.sin(24 * x + 9 * y + 1.5 * noise(size, rng, 2, 1))
    cloth = step(-0.004, 0.004, y - 0.84 - 0.05 * np.sin(5 * x + rng.uniform(0, 6)))
    top = top + (0.12 + 0.9 * fold - top) * cloth
    turn = 0.9 + (0.06 - 0.9) * table
    turn = turn + (1.15 - turn) * cloth
    shift = rng.uniform(-0.03, 0.03, 4)
    bodies = [
        ("vase", 0.42, 0.36 + shift[0], 0.15, 0.34),
        ("ball", 0.66, 0.62 + shift[1], 0.115, 0.115),
        ("ball", 0.72, 0.16 + shift[2], 0.1, 0.1),
        ("ball", 0.74, 0.8 + shift[3], 0.125, 0.125),
    ]
    forms = []
    for kind, cy, cx, wide, tall in bodies:
        t, across = (y - cy) / tall, (x - cx) / wide
        if kind == "vase":
            profile = np.interp(t, [-1, -0.92, -0.62, -0.05, 0.4, 0.9, 1], [0.66, 0.56, 0.36, 0.96, 1.0, 0.52, 0.58])
            profile = profile.astype(np.float32)
            distance = np.maximum((np.abs(across) - profile) * wide, (np.abs(t) - 1) * tall)
            nx, ny = np.clip(across / profile, -1, 1), 0.3 * t
            around = 0.45 * nx
        else:
            distance = (np.hypot(t, across) - 1) * wide
            nx, ny = across, t
            around = 0.8 + 1.1 * nx + 0.4 * ny
        nz = np.sqrt(np.clip(1 - nx**2 - ny**2, 0, 1))
        light = np.clip(-0.6 * nx - 0.5 * ny + 0.62 * nz, 0, 1)
        shade = 0.04 + 0.86 * light + 0.22 * np.clip(nx, 0, 1) * (1 - nz) + 0.35 * step(0.93, 1.0, light)
        shadow = np.hypot((y - cy - 0.92 * tall) / (0.3 * wide), (x - cx - 1.05 * wide) / (1.6 * wide))
        top = top - 0.62 * step(1.1, 0.3, shadow)
        forms.append((distance, shade, around))
    on = _hatch(on, rng, wall, turn, 1 - table)
    on = _hatch(on, rng, top, turn, table)
    for distance, shade, around in sorted(forms, key=lambda form: float(np.argmin(form[0]) // size)):  # from back to front
        inside = step(0.001, -0.001, distance)
        on.colour = over(on.colour, ground, resize(inside, on.relief.shape).clip(0, 1))
        on = _hatch(on, rng, shade, around, inside)
        for _ in range(3):  # three outlines, darker in the shade
            line = step(0.0026, 0.001, np.abs(distance + 0.0018 * noise(size, rng, 6, 2)))
            pressed = np.clip(0.95 - 0.7 * shade + 0.2 * noise(size, rng, 7, 1), 0.15, 1)
            on.colour = over(on.colour, dye("1b1817"), resize(line * pressed, on.relief.shape).clip(0, 1))
    # charcoal and chalk stick to the raised grain of the paper
    return picture(over(ground, on.colour, np.clip(0.9 + 0.25 * tooth, 0.15, 1)))
