"""Helpers for tests of networks and training: random VGG weights in common formats, and folders of small images."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from efdm.models import VGG, StyleNetwork, build, load_vgg, vgg
from efdm.style import training
from efdm.style.settings import Settings

# convolutions per block; torchvision numbers convolutions, ReLUs and poolings alike
BLOCKS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)
Network = TypeVar("Network", bound=nn.Module)


@functools.cache
def numbered_vgg(name: str, *, blocks: int = 5, widths: tuple[int, ...] = WIDTHS) -> dict[str, Tensor]:
    """Return random weights that preserve the scale of activations, under torchvision's names. Do not modify them."""
    generator = torch.Generator().manual_seed(1)
    state, number, inputs = {}, 0, 3
    for count, width in zip(BLOCKS[name][:blocks], widths, strict=False):
        for _ in range(count):
            spread = (2 / (9 * inputs)) ** 0.5
            filters = torch.randn(width, inputs, 3, 3, generator=generator) * spread
            # zero mean, because inputs are positive and a channel would otherwise be active always or never
            state[f"features.{number}.weight"] = filters - filters.mean((1, 2, 3), keepdim=True)
            state[f"features.{number}.bias"] = torch.rand(width, generator=generator) * 0.2
            number, inputs = number + 2, width
        number += 1
    return state


@functools.cache
def vgg_normalised() -> dict[str, Tensor]:
    """Return random weights numbered as in `vgg_normalised.pth`, whose first layer is a 1x1 convolution."""
    state = numbered_vgg("vgg19", blocks=4)
    renamed = {"0.weight": torch.randn(3, 3, 1, 1), "0.bias": torch.randn(3)}
    theirs = sorted({int(key.split(".")[1]) for key in state})
    for n, at in zip(theirs, (2, 5, 9, 12, 16, 19, 22, 25, 29, 32, 35, 38), strict=True):
        renamed |= {f"{at}.{kind}": state[f"features.{n}.{kind}"] for kind in ("weight", "bias")}
    return renamed


def randomize(network: Network) -> Network:
    """Initialize all convolutions: residual branches start at zero, and deep activations would vanish."""
    for parameter in network.parameters():
        if parameter.dim() == 4:
            nn.init.kaiming_normal_(parameter)
    return network


def teacher_vgg() -> VGG:
    """Return a loss network with random weights."""
    return load_vgg(VGG("vgg16", "relu4_3", padding="zeros", pooling="floor"), numbered_vgg("vgg16", blocks=4))


def slim_vgg(padding: Any = "zeros", pooling: Any = "floor", *, width: int = 8, until: str = "relu5_1") -> VGG:
    """Return a frozen VGG-16 of full depth with few channels and random weights, for fast tests."""
    with mock.patch.object(vgg, "WIDTHS", (width,) * 5):
        encoder = VGG("vgg16", until, padding=padding, pooling=pooling)
    return load_vgg(encoder, numbered_vgg("vgg16", widths=(width,) * 5)).eval().requires_grad_(False)


def vgg_network() -> StyleNetwork:
    """Return a network whose encoder is a VGG with random weights."""
    network = build("vgg16")
    load_vgg(network.stages[0], numbered_vgg("vgg16", blocks=4))  # type: ignore[arg-type]
    return network


def vgg_file(folder: Path) -> Path:
    """Write a VGG-16 with random weights up to relu4_3."""
    path = folder / "random-vgg16.safetensors"
    save_file({k: v.half() for k, v in numbered_vgg("vgg16", blocks=4).items()}, path)
    return path


def one_picture(folder: Path, *, seed: int, side: int) -> Path:
    """Write one square, mirror-symmetric image: every crop of its full size is the same."""
    folder.mkdir(parents=True)
    light = np.random.default_rng(seed).random((4, 4, 3)) ** seed
    whole = Image.fromarray(np.uint8(255 * light)).resize((side, side), Image.Resampling.BILINEAR)
    left = np.asarray(whole)[:, : side // 2]
    Image.fromarray(np.hstack([left, left[:, ::-1]])).save(folder / "0.png")
    return folder


def noise_pictures(folder: Path, count: int, *, seed: int, side: int = 40) -> Path:
    """Write images of coarse random colours; each seed has its own palette."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        tint, light = rng.random(3), rng.random((8, 10, 3))
        pixels = np.uint8(255 * np.clip(0.5 * tint + 0.5 * light, 0, 1))
        Image.fromarray(pixels).resize((side + 8, side), Image.Resampling.BILINEAR).save(folder / f"{i}.png")
    return folder


def train(settings: Settings, run: Path, **options: Any) -> StyleNetwork:
    """Call `efdm.style.training.train`; ``options`` may contain the intervals of logs, checkpoints and previews."""
    every = {name: options.pop(name) for name in ("log_every", "save_every", "preview_every") if name in options}
    return training.train(dataclasses.replace(settings, **every), run, **options)
