"""Nodes for ComfyUI: style transfer, colour match and latent match.

Install the package into the Python environment of ComfyUI, and put a file ``efdm_nodes.py`` with this line into the folder
``custom_nodes``::

    from efdm.integrations.comfyui import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

Images are tensors ``(b, h, w, c)`` of floats in [0, 1], masks ``(h, w)`` or ``(b, h, w)``, and latents dictionaries with
``samples`` ``(b, c, h, w)`` or ``(b, c, t, h, w)``.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, ClassVar, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.models import NETWORKS
from efdm.ops import MATCHERS, blend
from efdm.style import Stylizer, match_picture, prepare_reference
from efdm.style.color import COLORS, SPACES
from efdm.style.levels import TIES
from efdm.style.options import Method
from efdm.style.photoreal import PHOTOREAL
from efdm.training.device import default_device

STRENGTH = ("FLOAT", {"default": 1.0, "min": 0.0, "max": 1.0, "step": 0.01})
SEED = ("INT", {"default": 0, "min": 0, "max": 2**31 - 1})
FRAMES = ("together", "each")
Inputs = dict[str, Any]
Latent = dict[str, Any]


def compute_device() -> torch.device:
    """Return ComfyUI's device, or the default device outside ComfyUI."""
    try:
        return importlib.import_module("comfy.model_management").get_torch_device()
    except ModuleNotFoundError:
        return torch.device(default_device())


@functools.lru_cache(maxsize=1)
def _stylizer(model: str, device: torch.device) -> Stylizer:
    return Stylizer.from_pretrained(model, device)


class Node:
    """A node that calls ``run`` with the inputs ``required`` and ``optional``."""

    RETURN_TYPES: tuple[str, ...] = ("IMAGE",)
    FUNCTION = "run"
    CATEGORY = "EFDM"
    required: ClassVar[Inputs]
    optional: ClassVar[Inputs] = {}

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Inputs]:
        return {"required": cls.required, "optional": cls.optional}


class StyleTransfer(Node):
    """Stylize every image of a batch with one style, or with the style of the same index."""

    required: ClassVar[Inputs] = {
        "image": ("IMAGE",), "style": ("IMAGE",), "model": (list(NETWORKS), {"default": "small"}), "strength": STRENGTH,
        "method": (list(MATCHERS),), "preserve_color": (list(COLORS),), "photoreal": (list(PHOTOREAL),),
        "size": ("INT", {"default": 0, "min": 0, "max": 8192, "tooltip": "short side; 0 selects it automatically"}),
    }  # fmt: skip

    def run(
        self, image: Tensor, style: Tensor, model: str, strength: float, method: str, preserve_color: str, photoreal: str,
        size: int,
    ) -> tuple[Tensor]:  # fmt: skip
        stylizer = _stylizer(model, compute_device())
        looks = [stylizer.prepare(_channels_first(picture), size=size or "auto") for picture in style]
        stylized = [
            stylizer.stylize(
                _channels_first(picture), looks[index % len(looks)], strength=strength, method=method,
                preserve_color=preserve_color, photoreal=photoreal, size=size or "auto",
            )
            for index, picture in enumerate(image)
        ]  # fmt: skip
        return (torch.stack(stylized).movedim(1, -1).to(image),)


class ColorMatch(Node):
    """Match the colours of a batch of images with those of the reference images, which are pooled.

    ``frames="together"`` matches the batch as one distribution, so that the frames of a video do not flicker.
    """

    required: ClassVar[Inputs] = {
        "image": ("IMAGE",), "reference": ("IMAGE",), "space": (list(SPACES),), "method": (list(get_args(Method)),),
        "frames": (list(FRAMES),), "strength": STRENGTH, "ties": (list(TIES),), "seed": SEED,
    }  # fmt: skip
    optional: ClassVar[Inputs] = {"mask": ("MASK",), "reference_mask": ("MASK",)}

    def run(
        self, image: Tensor, reference: Tensor, space: str, method: Method, frames: str, strength: float, ties: str,
        seed: int, mask: Tensor | None = None, reference_mask: Tensor | None = None,
    ) -> tuple[Tensor]:  # fmt: skip
        device = compute_device()
        target = prepare_reference(
            _stacked(reference), space=space, method=method, masks=_mask(reference_mask, reference), device=device
        )
        where = _mask(mask, image)
        options: dict[str, Any] = {"strength": strength, "ties": ties, "seed": seed, "device": device}
        if frames == "together":
            matched = match_picture(_stacked(image), target, mask=where, **options)
            rgb = matched.movedim(0, -1).reshape(*image.shape[:3], 3)
        else:
            masks = [None] * len(image) if where is None else where.split(image.shape[1])
            pairs = zip(map(_channels_first, image), masks, strict=True)
            rgb = torch.stack([match_picture(x, target, mask=m, **options) for x, m in pairs]).movedim(1, -1)
        return (torch.cat([rgb.clamp(0, 1).to(image), image[..., 3:]], -1),)


class LatentMatch(Node):
    """Match the channels of latents with those of reference latents: one for all, or one for each."""

    RETURN_TYPES = ("LATENT",)
    required: ClassVar[Inputs] = {
        "latent": ("LATENT",), "reference": ("LATENT",), "method": (list(MATCHERS),), "strength": STRENGTH,
    }  # fmt: skip

    def run(self, latent: Latent, reference: Latent, method: str, strength: float) -> tuple[Latent]:
        content = latent["samples"]
        device = compute_device()
        x, y = content.to(device), reference["samples"].to(device, content.dtype)
        if len(y) not in (1, len(x)):
            y = y[torch.arange(len(x), device=device) % len(y)]
        matched = blend(x, MATCHERS[method](x, y), strength)
        return ({**latent, "samples": matched.to(content)},)


def _channels_first(image: Tensor) -> Tensor:
    """Return RGB ``(3, h, w)`` of an image ``(h, w, c)``. Alpha is dropped."""
    return image[..., :3].movedim(-1, 0).contiguous()


def _stacked(images: Tensor) -> Tensor:
    """Return a batch ``(b, h, w, c)`` as one picture ``(3, b h, w)``."""
    return _channels_first(images.flatten(0, 1))


def _mask(mask: Tensor | None, images: Tensor) -> Tensor | None:
    """Return a mask as booleans ``(b h, w)``: resized to the images, repeated for every image, True where it is >= 0.5."""
    if mask is None:
        return None
    batch = mask.reshape(-1, 1, *mask.shape[-2:]).float()
    batch = F.interpolate(batch, tuple(images.shape[1:3]), mode="nearest-exact")[:, 0]
    return batch[torch.arange(len(images)) % len(batch)].flatten(0, 1) >= 0.5


NODE_CLASS_MAPPINGS = {"EFDMStyleTransfer": StyleTransfer, "EFDMColorMatch": ColorMatch, "EFDMLatentMatch": LatentMatch}
NODE_DISPLAY_NAME_MAPPINGS = {
    "EFDMStyleTransfer": "EFDM Style Transfer", "EFDMColorMatch": "EFDM Colour Match",
    "EFDMLatentMatch": "EFDM Latent Match",
}  # fmt: skip
