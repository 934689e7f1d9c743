"""VGG encoders with named layers, and decoders that mirror them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.models.state_dicts import load_state, rename_layers
from efdm.ops.choices import check_choice

CONVS_PER_BLOCK: Mapping[str, tuple[int, ...]] = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSIFIERS = ("classifier.", "pre_logits.", "head.")  # prefixes of the classifiers of torchvision and timm
Padding = Literal["reflect", "zeros"]
Pooling = Literal["ceil", "floor"]


def conv_names(name: str, until: str) -> tuple[str, ...]:
    """Return the convolutions up to a tap: ``conv_names("vgg16", "relu2_1")`` is conv1_1, conv1_2, conv2_1."""
    check_choice("name", name, CONVS_PER_BLOCK)
    names = list(numbered_convs(name).values())
    check_choice("until", until, [n.replace("conv", part) for part in ("relu", "conv") for n in names])
    return tuple(names[: names.index(until.replace("relu", "conv")) + 1])


def pad(x: Tensor, border: str = "reflect") -> Tensor:
    """Pad height and width by one with "reflect" or "replicate"; images one pixel wide are always replicated."""
    if min(x.shape[-2:]) < 2:
        border = "replicate"
    if x.device.type == "cpu":
        return F.pad(x, (1, 1, 1, 1), mode=border)
    return _pad_by_parts(x, border)  # F.pad loses channels_last on a GPU, and its backward uses slow atomic additions


def _pad_by_parts(x: Tensor, border: str) -> Tensor:
    first, last = (1, -2) if border == "reflect" else (0, -1)
    for dim in (2, 3):
        end = x.shape[dim] + last
        x = torch.cat([x.narrow(dim, first, 1), x, x.narrow(dim, end, 1)], dim)
    return x


class VGG(nn.Module):
    """A VGG without its classifier, up to the layer ``until``, for RGB images in [0, 1].

    The layer ``input`` is a 1x1 convolution that holds the colour transform of a checkpoint: normalization by the mean and
    standard deviation of ImageNet, or the conversion to BGR of `vgg_normalised.pth`. Style transfer uses the default padding
    and pooling; the features of the original classifier (LPIPS) need ``padding="zeros", pooling="floor"``.
    """

    def __init__(
        self, name: str = "vgg16", until: str = "relu4_1", *, padding: Padding = "reflect", pooling: Pooling = "ceil"
    ) -> None:
        super().__init__()
        check_choice("padding", padding, get_args(Padding))
        check_choice("pooling", pooling, get_args(Pooling))
        self.name, self.until, self.padding, self.pooling = name, until, padding, pooling
        self.names = conv_names(name, until)
        self.input = nn.Conv2d(3, 3, 1)
        with torch.no_grad():
            std = torch.tensor(IMAGENET_STD)
            self.input.weight.copy_(torch.diag(1 / std).view(3, 3, 1, 1))
            self.input.bias.copy_(-torch.tensor(IMAGENET_MEAN) / std)  # type: ignore[union-attr]
        width = 3
        for conv in self.names:
            out = WIDTHS[int(conv[4]) - 1]
            self.add_module(conv, nn.Conv2d(width, out, 3, padding=int(padding == "zeros")))
            width = out

    def taps(self, images: Tensor, taps: Sequence[str]) -> list[Tensor]:
        """Return the features at ``taps``, in order of depth: "relu2_1" after the ReLU, "conv2_1" before it."""
        if unknown := [t for t in taps if t.replace("relu", "conv") not in self.names]:
            raise ValueError(f"{self.name} up to {self.until} has no {', '.join(unknown)}")
        # no `default=` of max, which torch.compile does not trace
        last = max([-1, *(self.names.index(t.replace("relu", "conv")) for t in taps)])
        features: list[Tensor] = []
        x = self.input(images)
        block = "1"
        for conv in self.names[: last + 1]:
            if conv[4] != block:
                x, block = F.max_pool2d(x, 2, ceil_mode=self.pooling == "ceil"), conv[4]
            x = self.get_submodule(conv)(pad(x) if self.padding == "reflect" else x)
            if conv in taps:
                features.append(x)
            x = F.relu(x)
            if conv.replace("conv", "relu") in taps:
                features.append(x)
        return features

    def forward(self, images: Tensor, taps: Sequence[str] | None = None) -> Any:
        """Return the last features, or those at ``taps`` as a list. Unlike `taps`, this respects `nn.Module.compile`."""
        return self.taps(images, (self.until,))[0] if taps is None else self.taps(images, taps)

    def extra_repr(self) -> str:
        return f"{self.name}, until={self.until}, padding={self.padding}, pooling={self.pooling}"


def load_vgg(encoder: VGG, state: Mapping[str, Tensor]) -> VGG:
    """Fill an encoder from a checkpoint and return it. The classifier and layers deeper than the encoder are ignored.

    Accepts files of this package, ``features.N`` of torchvision and timm, and the numbered layers of `vgg_normalised.pth`.
    """
    names = {f"features.{n}": conv for n, conv in numbered_convs(encoder.name).items()}
    if "0.weight" in state:  # vgg_normalised.pth has a 1x1 convolution first, and a padding layer before every convolution
        names = {"0": "input", **{str(n): conv for n, conv in numbered_convs(encoder.name, first=2, step=3).items()}}
    deeper = tuple(f"{conv}." for conv in numbered_convs(encoder.name).values() if conv not in encoder.names)
    renamed = rename_layers(state, names).items()
    needed = {key: value for key, value in renamed if not key.startswith((*deeper, *CLASSIFIERS))}
    return load_state(encoder, encoder.name, needed, optional=("input.",))


def numbered_convs(name: str, first: int = 0, step: int = 2) -> dict[int, str]:
    """Return the convolutions of a VGG by their position in ``nn.Sequential``, by default that of torchvision."""
    names, position = {}, first
    for block, count in enumerate(CONVS_PER_BLOCK[name], 1):
        for i in range(1, count + 1):
            names[position] = f"conv{block}_{i}"
            position += step
        position += 1  # pooling
    return names


@torch.inference_mode()
def mean_activations(encoder: VGG, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return the mean of every channel after every ReLU, over images and positions, as input to `normalize`."""
    taps = [n.replace("conv", "relu") for n in encoder.names]
    sums = {n: torch.zeros(()) for n in encoder.names}
    count = 0
    for images in batches:
        count += len(images)
        for name, features in zip(encoder.names, encoder.taps(images, taps), strict=True):
            sums[name] = sums[name] + features.mean((2, 3)).sum(0).double().cpu()
    if not count:
        raise ValueError("mean_activations needs at least one batch of images")
    return {name: (total / count).float() for name, total in sums.items()}


@torch.no_grad()
def normalize(encoder: VGG, means: Mapping[str, Tensor]) -> VGG:
    """Rescale the filters in place, so that every channel has mean activation 1 on the images that gave ``means``.

    This is exact for convolutions, ReLUs and max pooling: a channel divided by a positive number and multiplied by it in the
    next layer leaves the rest of the network unchanged. A channel that is never active keeps its scale.
    """
    if missing := [name for name in encoder.names if name not in means]:
        raise ValueError(f"means has no {', '.join(missing)}; measure it with an encoder up to {encoder.until}")
    before = torch.ones(3)
    for name in encoder.names:
        conv = encoder.get_submodule(name)
        mean = torch.where(means[name] > 0, means[name], 1.0)
        scale = (before[None, :] / mean[:, None]).to(conv.weight)  # type: ignore[arg-type]
        conv.weight.mul_(scale[..., None, None])  # type: ignore[operator]
        conv.bias.div_(mean.to(conv.bias))  # type: ignore[operator, arg-type]
        before = mean
    return encoder


class MirrorDecoder(nn.Module):
    """Map features back to images by the encoder's convolutions in reverse, with nearest upsampling in place of pooling."""

    def __init__(self, name: str = "vgg16", until: str = "relu4_1") -> None:
        super().__init__()
        self.name, self.until = name, until
        blocks = [int(n[4]) for n in conv_names(name, until)]
        widths = [3, *(WIDTHS[b - 1] for b in blocks)]
        self.convs = nn.ModuleList(nn.Conv2d(b, a, 3) for a, b in reversed(list(pairwise(widths))))
        # upsample where the encoder pools
        self.up_after = tuple(a != b for a, b in reversed(list(pairwise([1, *blocks]))))

    def forward(self, features: Tensor) -> Tensor:
        x = features
        for i, (conv, up) in enumerate(zip(self.convs, self.up_after, strict=True)):
            x = conv(pad(x))
            if i + 1 < len(self.convs):
                x = F.relu(x)
            if up:
                x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return x

    def extra_repr(self) -> str:
        return f"{self.name}, from={self.until}"


def load_decoder(decoder: MirrorDecoder, state: Mapping[str, Tensor]) -> MirrorDecoder:
    """Fill a decoder from a file of this package, or from pytorch-AdaIN's `decoder.pth`, and return it."""
    numbers = sorted({int(part) for key in state for part in key.split(".") if part.isdigit()})
    # decoder.pth counts ReLUs, padding and upsampling as well
    renamed = rename_layers(state, {str(number): f"convs.{i}" for i, number in enumerate(numbers)})
    return load_state(decoder, f"a decoder of {decoder.name} from {decoder.until}", renamed)
