"""Draw the digits of ``efdm.data.digits`` in four styles: ``python -m tools.paint_digits`` makes the files again.

The handwriting is real: 1797 scans of 8 x 8 pixels from scikit-learn (UCI, Alpaydin and Kaynak, "Optical Recognition of
Handwritten Digits", CC BY 4.0).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter1d
from sklearn.datasets import load_digits

from .paint_styles.fields import over, step

PICTURES = Path(__file__).parents[1] / "src" / "efdm" / "data" / "pictures"
COLUMNS = 43  # of the sheet
Floats = NDArray[np.float32]
Draw = np.random.Generator


def paint(size: int = 32, seed: int = 0) -> tuple[NDArray[np.uint8], list[str]]:
    """Return pictures ``(1797, size, size, 3)`` and their names, style/digit/scan. Each scan has one style."""
    digits: Any = load_digits()
    scans, labels = (digits.images / 16).astype(np.float32), digits.target.astype(np.int64)
    parts = _divide(labels, len(STYLES), seed)
    pictures, names = [], []
    for number, (style, draw) in enumerate(STYLES.items()):
        # one generator per style, so changing one style does not affect the others
        rng = np.random.default_rng([seed, number])
        drawn = np.clip(draw(_strokes(scans[parts[number]], size, rng), rng), 0, 1)
        pictures.append(np.rint(drawn * 255).astype(np.uint8))
        names += [f"{style}/{labels[i]}/{i:04d}" for i in parts[number]]
    return np.concatenate(pictures), names


def _divide(labels: NDArray[np.int64], domains: int, seed: int) -> list[NDArray[np.int64]]:
    """Divide the digits of each class among the domains. Within a domain, classes alternate, so any prefix is balanced."""
    order = np.random.default_rng([seed, domains]).permutation(len(labels))
    # a different first domain for each class, otherwise domain 0 would get all remainders
    domain = (_nth(labels[order]) + labels[order]) % domains
    parts = (order[domain == number] for number in range(domains))
    return [part[np.lexsort((labels[part], _nth(labels[part])))] for part in parts]


def _nth(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each label, the number of equal labels before it."""
    return np.tril(labels[:, None] == labels, -1).sum(axis=1)


def _strokes(scans: Floats, size: int, rng: Draw) -> Floats:
    """Return strokes ``(n, size, size)`` in [0, 1]: scans enlarged, and slightly rotated, shifted and slanted."""
    n = len(scans)
    angle, slant = rng.uniform(-0.15, 0.15, (2, n, 1, 1))
    zoom = rng.uniform(1.1, 1.35, (n, 1, 1))
    shift = rng.uniform(-0.5, 0.5, (2, n, 1, 1))
    grid = (np.arange(size) + 0.5) / size * 8 - 4
    y, x = np.meshgrid(grid, grid, indexing="ij")
    x, y = x - slant * y, y + 0 * slant
    rows = (np.cos(angle) * y - np.sin(angle) * x) * zoom + shift[0] + 3.5
    columns = (np.sin(angle) * y + np.cos(angle) * x) * zoom + shift[1] + 3.5
    return step(0.2, 0.6, _sample(scans, rows, columns))


def _sample(scans: Floats, rows: Floats, columns: Floats) -> Floats:
    """Interpolate scans with quadratic B-splines, because linear interpolation would show the 8 x 8 grid. Outside is 0."""
    padded = np.pad(scans, ((0, 0), (3, 3), (3, 3)))
    n, last = np.arange(len(scans))[:, None, None], padded.shape[1] - 2
    out = np.zeros(rows.shape, np.float32)
    row, column = (np.clip(np.rint(v).astype(np.int64) + 3, 1, last) for v in (rows, columns))
    for dy, wy in _spline(rows - np.rint(rows)):
        for dx, wx in _spline(columns - np.rint(columns)):
            out += padded[n, row + dy, column + dx] * wy * wx
    return out


def _spline(t: Floats) -> list[tuple[int, Floats]]:
    return [(-1, 0.5 * (0.5 - t) ** 2), (0, 0.75 - t**2), (1, 0.5 * (0.5 + t) ** 2)]


def _blur(values: Floats, radius: float) -> Floats:
    """Blur the last two axes with a Gaussian; the border is repeated."""
    reach = max(1, round(3 * radius))
    for axis in (-2, -1):
        values = gaussian_filter1d(values, radius, axis, output=np.float64, mode="nearest", radius=reach)
    return values.astype(np.float32)


def _noise(like: Floats, radius: float, rng: Draw) -> Floats:
    """Return smooth noise with mean near 0 and standard deviation 1 for any ``radius``."""
    values = _blur(rng.uniform(-1, 1, like.shape).astype(np.float32), radius) if radius else rng.uniform(-1, 1, like.shape)
    return (values / values.std()).astype(np.float32)


def _colour(hue: NDArray[np.floating[Any]], saturation: Floats | float, value: Floats | float) -> Floats:
    """Convert hue, saturation and value in [0, 1] to RGB ``(..., 3)``."""
    wheel = np.abs((np.asarray(hue)[..., None] + np.array([0, 2 / 3, 1 / 3])) % 1 * 6 - 3) - 1
    pure = np.clip(wheel, 0, 1)
    s, v = np.asarray(saturation)[..., None], np.asarray(value)[..., None]
    return (v * (1 - s + s * pure)).astype(np.float32)


def _each(n: int, low: float, high: float, rng: Draw) -> Floats:
    """Draw one number per picture, ``(n, 1, 1)``."""
    return rng.uniform(low, high, (n, 1, 1)).astype(np.float32)


def ink(strokes: Floats, rng: Draw) -> Floats:
    """Draw ink of any colour, often faded, on tinted paper with fibres and ruled lines."""
    n, size, _ = strokes.shape
    paper = _colour(_each(n, 0, 1, rng), _each(n, 0.02, 0.3, rng), _each(n, 0.7, 0.98, rng))
    ruled = (np.arange(size)[None, :, None] + rng.integers(0, size, (n, 1, 1))) % (size // 4) == 0
    grain = 0.02 * _noise(strokes, 0.6, rng) - 0.06 * ruled
    dark = _colour(_each(n, 0, 1, rng), _each(n, 0.2, 0.9, rng), _each(n, 0.05, 0.35, rng))
    flow = np.clip(0.92 + 0.08 * _noise(strokes, 1.5, rng), 0, 1)
    strength = _each(n, 0.25, 1, rng)  # below 1 for faded ink
    return over(paper + grain[..., None], dark, strokes * flow * strength)


def neon(strokes: Floats, rng: Draw) -> Floats:
    """Draw bright tubes with a coloured glow, faint or dazzling, on a dark ground."""
    n, size, _ = strokes.shape
    hue, power = _each(n, 0, 1, rng), _each(n, 0.4, 1.5, rng)
    night = _colour(hue + rng.uniform(0.2, 0.8, hue.shape), 0.7, 0.08 + 0.03 * _noise(strokes, size / 6, rng))
    glow = _blur(strokes, size / 14) + 0.5 * _blur(strokes, size / 5)
    tube = step(0.45, 0.95, _blur(strokes, size / 40))
    light = night + _colour(hue, 0.9, 1.0) * (power * glow)[..., None]
    return over(np.clip(light, 0, 1), _colour(hue, 0.3, np.minimum(0.4 + 0.6 * power, 1)), tube)


def mosaic(strokes: Floats, rng: Draw) -> Floats:
    """Draw tiles with dark joints in two opposite colours; either can be the brighter."""
    n, size, _ = strokes.shape
    tile = max(2, size // 12)
    cells = -(-size // tile)
    covered = np.pad(strokes, ((0, 0), (0, cells * tile - size), (0, cells * tile - size)))
    share = covered.reshape(n, cells, tile, cells, tile).mean((2, 4))
    hue = _each(n, 0, 1, rng) + rng.uniform(-0.05, 0.05, share.shape)
    bright = 0.62 + rng.choice([-0.22, 0.22], (n, 1, 1))
    uneven = rng.uniform(-0.1, 0.1, (2, *share.shape))
    ground = _colour(hue, 0.55, bright + uneven[0])
    figure = _colour(hue + 0.45, 0.65, 1.3 - bright + uneven[1])
    tiles = over(ground, figure, step(0.25, 0.6, share))
    picture = tiles.repeat(tile, axis=1).repeat(tile, axis=2)[:, :size, :size]
    at = np.arange(size) % tile == 0
    return picture * np.where(at[:, None] | at, 0.8, 1)[None, :, :, None]


def outline(strokes: Floats, rng: Draw) -> Floats:
    """Draw hatched strokes with dark edges, in pencil on grainy gray."""
    n, size, _ = strokes.shape
    soft = _blur(strokes, size / 32)
    down, right = np.gradient(soft, axis=(1, 2))
    edge = step(0.1, 0.22, np.hypot(down, right) * size / 32)
    gap = size // 8
    lines = (np.arange(size)[:, None] + np.arange(size) + rng.integers(0, gap, (n, 1, 1))) % gap < gap / 2
    cover = np.maximum(edge, strokes * np.where(lines, 0.7, 0.3))
    gray = _each(n, 0.5, 0.75, rng) + 0.07 * _noise(strokes, 0, rng) + 0.05 * _noise(strokes, size / 8, rng)
    pressure = np.clip(_each(n, 0.5, 1, rng) + 0.15 * _noise(strokes, 1, rng), 0, 1)
    return np.repeat((gray - (gray - 0.1) * cover * pressure)[..., None], 3, axis=-1).astype(np.float32)


STYLES: Mapping[str, Callable[[Floats, Draw], Floats]] = {"ink": ink, "neon": neon, "mosaic": mosaic, "outline": outline}


if __name__ == "__main__":
    found, text = paint()
    tiles = np.zeros((-(-len(found) // COLUMNS) * COLUMNS, *found.shape[1:]), np.uint8)
    tiles[: len(found)] = found
    rows = tiles.reshape(-1, COLUMNS, *found.shape[1:]).transpose(0, 2, 1, 3, 4)
    sheet = Image.fromarray(rows.reshape(-1, COLUMNS * found.shape[2], 3))
    sheet.save(PICTURES / "digits.webp", lossless=True, quality=100, method=6)
    (PICTURES / "digits.txt").write_text("\n".join(text) + "\n")
