"""What tests of networks and of training need: random VGG weights in the usual formats, and folders of small pictures."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from efdm.models import StyleNetwork
from efdm.style import training
from efdm.style.settings import TOLD

# as torchvision counts: convolution, ReLU, convolution, ReLU, pooling
BLOCKS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)


@functools.cache
def numbered_vgg(name: str, *, blocks: int = 5) -> dict[str, Tensor]:
    """Random weights that keep the size of activations, under torchvision's names. Made once: not to be changed."""
    generator = torch.Generator().manual_seed(1)
    state, number, inputs = {}, 0, 3
    for count, width in zip(BLOCKS[name][:blocks], WIDTHS, strict=False):
        for _ in range(count):
            spread = (2 / (9 * inputs)) ** 0.5
            filters = torch.randn(width, inputs, 3, 3, generator=generator) * spread
            # without their mean, as every input is positive: a channel would fire always or never
            state[f"features.{number}.weight"] = filters - filters.mean((1, 2, 3), keepdim=True)
            state[f"features.{number}.bias"] = torch.rand(width, generator=generator) * 0.2
            number, inputs = number + 2, width
        number += 1
    return state


def vgg_file(folder: Path) -> Path:
    """A VGG-16 with random weights, down to relu4_3."""
    path = folder / "random-vgg16.safetensors"
    save_file({k: v.half() for k, v in numbered_vgg("vgg16", blocks=4).items()}, path)
    return path


def one_picture(folder: Path, *, seed: int, side: int) -> Path:
    """A square that is its own mirror image: whatever is drawn from this folder, it is the same."""
    folder.mkdir(parents=True)
    light = np.random.default_rng(seed).random((4, 4, 3)) ** seed
    whole = Image.fromarray(np.uint8(255 * light)).resize((side, side), Image.Resampling.BILINEAR)
    left = np.asarray(whole)[:, : side // 2]
    Image.fromarray(np.hstack([left, left[:, ::-1]])).save(folder / "0.png")
    return folder


def noise_pictures(folder: Path, count: int, *, seed: int, side: int = 40) -> Path:
    """Coarse random colours; another seed has another palette."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        tint, light = rng.random(3), rng.random((8, 10, 3))
        pixels = np.uint8(255 * np.clip(0.5 * tint + 0.5 * light, 0, 1))
        Image.fromarray(pixels).resize((side + 8, side), Image.Resampling.BILINEAR).save(folder / f"{i}.png")
    return folder


def train(settings: training.Settings, run: Path, **options: Any) -> StyleNetwork:
    """`efdm.style.training.train`, with what is told of a run among the options."""
    told = {name: options.pop(name) for name in TOLD if name in options}
    return training.train(dataclasses.replace(settings, **told), run, **options)
