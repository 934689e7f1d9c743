"""VGG encoders with named taps, and the decoders that mirror them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CONVS_PER_BLOCK: Mapping[str, tuple[int, ...]] = MappingProxyType({"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)})
WIDTHS = (64, 128, 256, 512, 512)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PADDINGS: Mapping[str, int] = MappingProxyType({"reflect": 0, "zeros": 1})  # what the convolutions themselves add


def conv_names(name: str, until: str) -> tuple[str, ...]:
    """The convolutions up to a tap: ``conv_names("vgg16", "relu2_1")`` is conv1_1, conv1_2, conv2_1."""
    if name not in CONVS_PER_BLOCK:
        raise ValueError(f"{name!r} is not an encoder; choose one of {', '.join(CONVS_PER_BLOCK)}")
    names = [f"conv{b}_{i}" for b, n in enumerate(CONVS_PER_BLOCK[name], 1) for i in range(1, n + 1)]
    last = until.replace("relu", "conv")
    if last not in names:
        taps = ", ".join(n.replace("conv", "relu") for n in names)
        raise ValueError(f"{name} has no tap {until!r}; it has {taps}")
    return tuple(names[: names.index(last) + 1])


def pad(x: Tensor, border: str = "reflect") -> Tensor:
    """Enlarge by one on every side: mirrored ("reflect"; a picture too thin for that repeats its edges), or "replicate"."""
    if min(x.shape[-2:]) < 2:
        border = "replicate"
    if x.device.type == "cpu":
        return F.pad(x, (1, 1, 1, 1), mode=border)
    return _pad_by_parts(x, border)  # a GPU's own padding leaves channels_last, and adds its gradients up one by one


def _pad_by_parts(x: Tensor, border: str) -> Tensor:
    first, last = (1, -2) if border == "reflect" else (0, -1)
    for dim in (2, 3):
        end = x.shape[dim] + last
        x = torch.cat([x.narrow(dim, first, 1), x, x.narrow(dim, end, 1)], dim)
    return x


class VGG(nn.Module):
    """A VGG without its classifier, cut after the layer ``until``. Pictures come as RGB in [0, 1].

    The layer ``input``, a 1x1 convolution, holds what a checkpoint wants done to colours first (ImageNet's mean and
    standard deviation, or the change to BGR of `vgg_normalised.pth`). Style transfer wants reflected borders and
    pooling that keeps odd edges; a classifier's own features (LPIPS) want ``padding="zeros", pooling="floor"``.
    """

    def __init__(
        self, name: str = "vgg16", until: str = "relu4_1", *, padding: str = "reflect", pooling: str = "ceil"
    ) -> None:
        super().__init__()
        if padding not in PADDINGS or pooling not in ("ceil", "floor"):
            raise ValueError(f"padding is reflect or zeros, pooling is ceil or floor; got {padding!r}, {pooling!r}")
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
            self.add_module(conv, nn.Conv2d(width, out, 3, padding=PADDINGS[padding]))
            width = out

    @property
    def width(self) -> int:
        """Channels of the last tap."""
        return WIDTHS[int(self.until[4]) - 1]

    def taps(self, images: Tensor, taps: Sequence[str]) -> list[Tensor]:
        """Features at ``taps`` ("relu2_1"), in order of depth; names of the form "conv2_1" give them before the ReLU."""
        known = {*self.names, *(n.replace("conv", "relu") for n in self.names)}
        if unknown := [t for t in taps if t not in known]:
            raise ValueError(f"{self.name} cut at {self.until} has no {', '.join(unknown)}")
        if not taps:
            return []
        last = max(self.names.index(t.replace("relu", "conv")) for t in taps)
        found: list[Tensor] = []
        x = self.input(images)
        block = "1"
        for conv in self.names[: last + 1]:
            if conv[4] != block:
                x, block = F.max_pool2d(x, 2, ceil_mode=self.pooling == "ceil"), conv[4]
            x = self.get_submodule(conv)(pad(x) if self.padding == "reflect" else x)
            if conv in taps:
                found.append(x)
            x = F.relu(x)
            if conv.replace("conv", "relu") in taps:
                found.append(x)
        return found

    def forward(self, images: Tensor, taps: Sequence[str] | None = None) -> Any:
        """The last features; with ``taps`` the list of features there, as `taps` gives it (but through `compile`)."""
        return self.taps(images, (self.until,))[0] if taps is None else self.taps(images, taps)

    def extra_repr(self) -> str:
        return f"{self.name}, until={self.until}, padding={self.padding}, pooling={self.pooling}"


def load_vgg(encoder: VGG, state: Mapping[str, Tensor]) -> VGG:
    """Fill an encoder from a checkpoint: our own names, ``features.N`` of torchvision and timm, or the numbered layers
    of `vgg_normalised.pth`, whose first is a 1x1 convolution. Deeper layers than the encoder has are left out."""
    own = {k: v.float() for k, v in state.items() if k.split(".")[0] in ("input", *encoder.names)}
    if own:
        _fill(encoder, own)
        return encoder
    prefix = "features." if any(k.startswith("features.") for k in state) else ""
    numbered: dict[int, dict[str, Tensor]] = {}
    for key, value in state.items():
        parts = key.removeprefix(prefix).split(".")
        if key.startswith(prefix) and len(parts) == 2 and parts[0].isdigit():
            numbered.setdefault(int(parts[0]), {})[parts[1]] = value.float()
    layers = [numbered[i] for i in sorted(numbered)]
    if any(layer["weight"].dim() == 1 for layer in layers if "weight" in layer):
        raise ValueError(f"the checkpoint has batch normalisation; {encoder.name} here is the one without")
    convs = [layer for layer in layers if layer.get("weight", torch.empty(0)).dim() == 4]
    names = ("input", *encoder.names) if convs and convs[0]["weight"].shape[-1] == 1 else encoder.names
    # the widths of layers that are not wanted tell VGG-16 from VGG-19 where those that are wanted cannot
    found = [len(layer["weight"]) for layer in convs][len(names) - len(encoder.names) :]
    expected = [WIDTHS[b] for b, n in enumerate(CONVS_PER_BLOCK[encoder.name]) for _ in range(n)]
    if any(f != e for f, e in zip(found, expected, strict=False)):
        raise ValueError(f"the checkpoint's layers are {found} wide, {encoder.name}'s are {expected}: is it the other VGG?")
    named = dict(zip(names, convs, strict=False))
    _fill(encoder, {f"{n}.{k}": v for n, layer in named.items() for k, v in layer.items()})
    return encoder


def _fill(encoder: VGG, state: Mapping[str, Tensor]) -> None:
    wanted = {k: v.shape for k, v in encoder.state_dict().items()}
    missing = [k for k in wanted if k not in state and not k.startswith("input.")]
    if missing:
        raise ValueError(
            f"the checkpoint has no {missing[0]} (and {len(missing) - 1} more) for {encoder.name} until {encoder.until}; "
            "expected torchvision's or timm's features.N.weight, vgg_normalised.pth, or a file that efdm wrote"
        )
    if wrong := [k for k, shape in wanted.items() if k in state and state[k].shape != shape]:
        key = wrong[0]
        raise ValueError(
            f"{key} is {tuple(state[key].shape)} in the checkpoint and {tuple(wanted[key])} in {encoder.name}: "
            "is it the other VGG?"
        )
    encoder.load_state_dict({k: v for k, v in state.items() if k in wanted}, strict=False)


@torch.inference_mode()
def mean_activations(encoder: VGG, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """The mean of every channel after every ReLU, over pictures and positions: what `normalise` divides by."""
    taps = [n.replace("conv", "relu") for n in encoder.names]
    sums = {n: torch.zeros(()) for n in encoder.names}
    count = 0
    for images in batches:
        count += len(images)
        for name, features in zip(encoder.names, encoder.taps(images, taps), strict=True):
            sums[name] = sums[name] + features.mean((2, 3)).sum(0).double().cpu()
    if not count:
        raise ValueError("mean_activations needs at least one batch of pictures")
    return {name: (total / count).float() for name, total in sums.items()}


@torch.no_grad()
def normalise(encoder: VGG, means: Mapping[str, Tensor]) -> VGG:
    """Rescale the filters, in place, so that every channel's mean activation is 1 where ``means`` was measured.

    Exact for a network of convolutions, ReLUs and max-pooling: dividing a channel by a positive number and multiplying
    the next layer's weights by it changes nothing else. A channel that never fires keeps its scale.
    """
    if missing := [name for name in encoder.names if name not in means]:
        raise ValueError(f"the means have no {', '.join(missing)}; measure them with an encoder until {encoder.until}")
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
    """From features back to a picture: the encoder's convolutions in reverse, with nearest upsampling for its pooling
    and no last activation."""

    def __init__(self, name: str = "vgg16", until: str = "relu4_1") -> None:
        super().__init__()
        self.name, self.until = name, until
        blocks = [int(n[4]) for n in conv_names(name, until)]
        widths = [3, *(WIDTHS[b - 1] for b in blocks)]
        self.convs = nn.ModuleList(nn.Conv2d(b, a, 3) for a, b in reversed(list(pairwise(widths))))
        # after which convolutions the encoder had been pooling, seen from the other end
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
    """Fill a decoder from our own file or from pytorch-AdaIN's `decoder.pth`, whose layers are numbered with gaps."""
    numbers = sorted({int(part) for key in state for part in key.split(".") if part.isdigit()})
    prefix = "convs." if any(k.startswith("convs.") for k in state) else ""
    if len(numbers) != len(decoder.convs):
        raise ValueError(
            f"the checkpoint has {len(numbers)} convolutions, a decoder of {decoder.name} from {decoder.until} has "
            f"{len(decoder.convs)}; decoder.pth of pytorch-AdaIN belongs to vgg19"
        )
    kinds = ("weight", "bias")
    wanted = {f"{prefix}{n}.{kind}": f"convs.{i}.{kind}" for i, n in enumerate(numbers) for kind in kinds}
    try:
        decoder.load_state_dict({new: state[old].float() for old, new in wanted.items() if old in state})
    except RuntimeError as error:
        raise ValueError(f"the checkpoint does not fit a decoder of {decoder.name} from {decoder.until}: {error}") from error
    return decoder
