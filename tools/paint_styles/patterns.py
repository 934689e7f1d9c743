"""Flat patterns: a poster of circles and bars, and a cloth with flowers."""

import numpy as np
from numpy.random import Generator

from .brush import OVERSAMPLING, picture, printed
from .fields import Array, dye, inks, noise, over, square, step


def bauhaus(size: int, rng: Generator) -> Array:
    """Circles, bars and triangles in primary colours on cream, balanced on a diagonal, with a slight misregistration."""
    m = OVERSAMPLING * size
    y, x = square(m)
    dry = noise(m, rng, 160, 2)
    red, blue, yellow, black, teal, pink, orange = inks("d62f27 1d4e9e f4b921 1a1817 2a8c82 eaa59a ee7b22")
    colour = over(np.broadcast_to(dye("f2e8d0"), (m, m, 3)), dye("e6d6b4"), 0.6 * step(0.2, 1, np.hypot(y - 0.45, x - 0.5)))
    grain = np.clip(0.95 + 0.045 * dry, 0, 1)
    soft = 0.0012

    def put(distance: Array, ink: Array, share: float | Array = 1.0) -> None:
        nonlocal colour
        colour = over(colour, ink, step(soft, -soft, distance) * grain * share)

    def times(distance: Array, ink: Array) -> None:
        nonlocal colour
        colour = over(colour, colour * ink, step(soft, -soft, distance) * grain)

    def bar(cy: float, cx: float, angle: float, long: float, thick: float) -> tuple[Array, Array, Array]:
        p = np.cos(angle) * (x - cx) - np.sin(angle) * (y - cy)
        q = np.sin(angle) * (x - cx) + np.cos(angle) * (y - cy)
        return np.maximum(np.abs(p) - long / 2, np.abs(q) - thick / 2), p, q

    tilt = rng.uniform(0.5, 0.85)
    cy, cx = 0.4 + rng.uniform(-0.03, 0.03), 0.42 + rng.uniform(-0.05, 0.05)
    r, turn = np.hypot(y - cy, x - cx), np.arctan2(y - cy, x - cx)
    put(bar(0.55, 0.5, tilt, 1.6, 0.2)[0], yellow)
    put(bar(0.72, 0.22, tilt, 0.7, 0.09)[0], pink)
    put(r - 0.285, red)
    put(np.maximum(r - 0.285, -(np.sin(turn + tilt))), blue * 0.9)
    put(np.abs(r - 0.225) - 0.02, dye("f2e8d0"))
    put(np.maximum(r - 0.165, np.cos(turn - 0.4)), black)
    put(np.maximum(r - 0.165, -np.cos(turn - 0.4)), orange)
    put(r - 0.07, dye("f6efdc"))
    put(np.hypot(y - cy, x - cx) - 0.03, red)
    for k in range(5):
        arc = np.abs(np.hypot(y - 1.02, x - 1.0) - 0.12 - 0.065 * k) - 0.022
        put(arc, (teal, yellow, black, red, blue)[(k + rng.integers(5)) % 5])
    d, p, q = bar(0.2, 0.82, -0.35, 0.3, 0.22)
    check = (np.floor(p / 0.0366) + np.floor(q / 0.0366)) % 2
    put(d, black, check.astype(np.float32))
    put(np.where(check < 1, d, 1), dye("f6efdc"))
    d, p, q = bar(0.87, 0.3, tilt - 0.12, 0.5, 0.13)
    put(np.maximum(d, np.abs(np.mod(q / 0.022, 1) - 0.5) * 0.022 - 0.006), black)
    times(np.hypot(y - 0.68, x - 0.62) - 0.14, dye("6fc0d0"))
    times(np.hypot(y - 0.6, x - 0.73) - 0.1, dye("f2a0a0"))
    wedge = np.maximum(np.maximum(-(x - 0.06) * 0.9 - (y - 0.96) * -0.2, (y - 0.97)), (x - 0.06) * 0.75 - (y - 0.68))
    put(wedge, teal)
    put(np.maximum(np.hypot(y - 0.07, x - 0.12) - 0.13, -(y - 0.07)), orange)
    put(np.maximum(np.hypot(y - 0.07, x - 0.12) - 0.07, -(y - 0.07)), blue)
    for _ in range(7):
        angle = tilt + rng.choice([0, np.pi / 2, 0.35])
        cy, cx, long = rng.uniform((0.1, 0.1, 0.3), (0.9, 0.95, 0.9)).tolist()
        put(bar(cy, cx, angle, long, rng.choice([0.004, 0.006, 0.011]))[0], black)
    for k in range(9):
        put(np.hypot(y - 0.08 - 0.033 * (k // 3), x - 0.46 - 0.033 * (k % 3)) - 0.009, (black, red)[k % 2])
    put(np.abs(np.hypot(y - 0.36, x - 0.9) - 0.065) - 0.007, black)
    put(np.hypot(y - 0.36, x - 0.9) - 0.038, yellow)
    return picture(printed(colour, rng, 0.028, 0.03))


def batik(size: int, rng: Generator) -> Array:
    """A wax-resist cloth: flowers on a lattice in indigo and brown, cream wax lines, and the crackle of the wax."""
    m = OVERSAMPLING * size
    y, x = square(m)
    hand = 0.0035 * noise(m, rng, 12, 3)  # wobble of hand-drawn lines
    v, u = y + hand, x + 0.0035 * noise(m, rng, 12, 3)
    cream, ochre, brown, dark, indigo, night = inks("f3e6c4 d99a3a 9c4f22 4a2416 24407f 141f45")
    k = 3.0
    offset = rng.uniform(0, 1)
    rise = np.mod(v * k + offset, 1) - 0.5
    run = np.mod(u * k + 0.5 * np.floor(v * k + offset) + 0.25, 1) - 0.5
    r, turn = np.hypot(rise, run), np.arctan2(rise, run)
    petals = int(rng.choice([6, 8, 10]))
    colour = np.broadcast_to(indigo, (m, m, 3))
    colour = over(colour, night, step(-0.3, 0.6, noise(m, rng, 5, 2)) * 0.7)
    line = 0.016

    def put(distance: Array, ink: Array, wax: Array = cream) -> None:
        """Draw a shape with a line of wax around it."""
        nonlocal colour
        colour = over(over(colour, wax, step(line + 0.006, line - 0.006, distance)), ink, step(0.006, -0.006, distance))

    # tendrils between the flowers
    vine = np.abs(np.sin(np.pi * (u * k + 0.35 * np.sin(2 * np.pi * v * k)) * 2)) * 0.1
    put(vine, brown)
    beads = np.hypot(np.mod(u * k * 8, 1) - 0.5, np.mod(v * k * 8, 1) - 0.5)
    colour = over(colour, ochre, step(0.22, 0.12, beads) * step(0.5, 0.58, r) * 0.95)
    wave_ = np.abs(np.cos(turn * petals / 2))
    put(r - 0.32 - 0.13 * wave_**0.7, brown)
    put(r - 0.25 - 0.12 * wave_, dark)
    veins = step(0.6, 0.85, np.cos(turn * petals * 4)) * step(0.2, 0.24, r) * step(0.36, 0.33, r - 0.05 * wave_)
    colour = over(colour, ochre, veins)
    put(r - 0.15 - 0.09 * np.abs(np.sin(turn * petals / 2)), indigo)
    ring = np.hypot(r - 0.2, (np.mod(turn * petals / (2 * np.pi) + 0.5, 1) - 0.5) * 0.2 * 2 * np.pi / petals)
    put(ring - 0.02, cream)
    put(r - 0.115, ochre)
    colour = over(colour, dark, step(0.3, 0.6, np.cos(turn * 16)) * step(0.112, 0.106, r) * step(0.06, 0.066, r))
    put(r - 0.05, brown)
    dots = np.hypot(r - 0.465, (np.mod(turn * 28 / (2 * np.pi), 1) - 0.5) * 0.465 * 2 * np.pi / 28)
    colour = over(colour, cream, step(0.019, 0.012, dots))
    # border stripes of the cloth
    for edge in (y, 1 - y):
        band = step(0.062, 0.06, edge + hand)
        teeth = np.abs(np.mod(u * 22, 1) - 0.5) * 2
        strip = over(np.broadcast_to(dark, colour.shape), ochre, step(-0.08, 0.08, teeth - (edge + hand) / 0.05))
        colour = over(over(colour, strip, band), cream, step(0.004, 0.002, np.abs(edge + hand - 0.062)))
    # dye in the cracks of the wax
    for cells, strength in ((4, 0.9), (6, 0.8), (9, 0.7)):
        crack = np.abs(noise(m, rng, cells, 4))
        slope = np.hypot(*np.gradient(crack)) + 1e-5
        colour = over(
            colour, indigo * 0.55, strength * step(2.6, 1.2, crack / slope) * (0.6 + 0.4 * step(0, 1, noise(m, rng, 4, 2)))
        )
    weave = 0.5 * np.sin(2 * np.pi * x * size / 3.1) + 0.5 * np.sin(2 * np.pi * y * size / 3.1)
    bleed = 0.06 * noise(m, rng, 26, 3) + 0.05 * noise(m, rng, 5, 2) + 0.025 * weave
    return picture((colour * (1 + bleed)[..., None]).astype(np.float32))
