"""Colours, smooth noise and flows: ``(n, n)`` arrays over the unit square."""

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from PIL import Image

Array = NDArray[np.floating[Any]]  # mostly float32


def inks(codes: str) -> Array:
    """Convert hexadecimal codes to colours in [0, 1]: ``inks("0b1f4b f4d35e")`` has shape ``(2, 3)``."""
    return np.array([[int(code[i : i + 2], 16) for i in (0, 2, 4)] for code in codes.split()], np.float32) / 255


def dye(code: str) -> Array:
    return inks(code)[0]


def ramp(t: Array, codes: str) -> Array:
    """Interpolate evenly spaced colours at ``t``, clipped to [0, 1], of any shape; the last axis of the result is RGB."""
    colours = inks(codes)
    stops = np.linspace(0, 1, len(colours))
    return np.stack([np.interp(t, stops, colours[:, c]) for c in range(3)], -1).astype(np.float32)


def square(n: int) -> tuple[Array, Array]:
    """Return the y and x coordinates of pixel centres in the unit square."""
    axis = (np.arange(n, dtype=np.float32) + 0.5) / n
    y, x = np.meshgrid(axis, axis, indexing="ij")
    return y, x


def resize(field: Array, shape: tuple[int, int]) -> Array:
    image = Image.fromarray(np.ascontiguousarray(field, np.float32))
    return np.asarray(image.resize(shape[::-1], Image.Resampling.BICUBIC), np.float32)


def noise(n: int, rng: Generator, cells: float | tuple[float, float], octaves: int = 3) -> Array:
    """Return smooth noise with mean 0 and standard deviation 1, with ``cells`` bumps per side (height, width).

    Each octave has twice as many bumps at half the amplitude.
    """
    tall, wide = cells if isinstance(cells, tuple) else (cells, cells)
    total = np.zeros((n, n), np.float32)
    for octave in range(octaves):
        shape = [max(2, round(side * 2**octave) + 1) for side in (tall, wide)]
        total += resize(rng.standard_normal(shape).astype(np.float32), (n, n)) / 2**octave
    return (total - total.mean()) / (total.std() + 1e-6)


def step(low: float, high: float, x: ArrayLike) -> Array:
    """Return 0 below ``low``, 1 above ``high`` and a smooth step between; ``low > high`` reverses it."""
    t = np.clip((np.asarray(x, np.float32) - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def over(below: Array, colour: Array, mask: Array) -> Array:
    """Blend a colour, or a picture, over ``below`` with the weights ``mask``."""
    return below + (colour - below) * mask[..., None]


def jitter(colours: Array, rng: Generator, value: float, hue: float) -> Array:
    """Vary each colour randomly in brightness (``value``) and in hue."""
    shape = colours.shape[:-1]
    moved = colours + value * rng.standard_normal((*shape, 1)) + hue * rng.standard_normal((*shape, 3))
    return np.clip(moved, 0, 1).astype(np.float32)


def at(field: Array, points: Array) -> Array:
    """Return the values of a field at points ``(..., 2)`` (y, x) of the unit square; the border is repeated outside."""
    n = field.shape[0]
    index = np.clip((points * n).astype(np.int64), 0, n - 1)
    return field[index[..., 0], index[..., 1]]


def along(potential: Array) -> Array:
    """Return the unit flow ``(n, n, 2)`` along the level lines of a potential."""
    dy, dx = np.gradient(potential)
    return unit(np.stack([-dx, dy], -1))


def towards(angle: ArrayLike) -> Array:
    """Return the unit flow at an angle above the horizontal."""
    angle = np.asarray(angle, np.float32)
    return np.stack([-np.sin(angle), np.cos(angle)], -1)


def unit(vectors: Array) -> Array:
    return vectors / (np.linalg.norm(vectors, axis=-1, keepdims=True) + 1e-8)
