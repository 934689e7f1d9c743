"""A faster stem for ResNets in bfloat16 on a GPU.

The usual kernels of the stem (7 x 7 convolution, batch norm, ReLU, max pooling) take 30 % of the step of a ResNet-18 on an
H200: cuDNN pads the three channels of a picture to eight, and the backward of max pooling is slow in channels_last format.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efdm.recognition.cuda import has_kernels, launch
from efdm.training.compiled import Forward, compiled

_CONVOLUTION = {
    "in_channels": 3, "kernel_size": (7, 7), "stride": (2, 2), "padding": (3, 3), "dilation": (1, 1), "groups": 1,
    "bias": None, "padding_mode": "zeros",
}  # fmt: skip
_POOLING = {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 1, "ceil_mode": False, "return_indices": False}


def stem_forwards(model: nn.Module, hooked: Collection[nn.Module]) -> dict[nn.Module, Forward]:
    """Return forwards for the first convolution, ReLU and max pooling of a ResNet, or an empty dict for other models.

    The output of the ReLU is not computed, so the ReLU must not be one of the ``hooked`` modules.
    """
    children = list(model.children())[:4]
    if [type(child) for child in children] != [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]:
        return {}
    convolution, _, relu, pooling = children
    if relu in hooked or relu._forward_hooks or not (_has(convolution, _CONVOLUTION) and _has(pooling, _POOLING)):
        return {}
    return {convolution: compiled(_space_to_depth), relu: lambda _, x: x, pooling: lambda _, x: relu_max_pool(x)}


def _has(module: nn.Module, options: dict[str, Any]) -> bool:
    return all(getattr(module, name) == value for name, value in options.items())


def _space_to_depth(convolution: nn.Conv2d, x: Tensor) -> Tensor:
    """Compute a 7 x 7 convolution with stride 2 as one of 4 x 4 with stride 1 over blocks of 2 x 2 pixels."""
    bottom, right = (2 + size % 2 for size in x.shape[2:])
    blocks = F.pixel_unshuffle(F.pad(x, (4, right, 4, bottom)), 2)
    weight = F.pixel_unshuffle(F.pad(convolution.weight, (1, 0, 1, 0)), 2)
    # 12 channels padded to 16: cuDNN's kernels for multiples of 8 are faster
    blocks, weight = (F.pad(t, (0, 0, 0, 0, 0, 4)).contiguous(memory_format=torch.channels_last) for t in (blocks, weight))
    return F.conv2d(blocks, weight)


def relu_max_pool(x: Tensor) -> Tensor:
    """Return ``F.max_pool2d(F.relu(x), 3, stride=2, padding=1)``. A kernel runs for bfloat16 in channels_last format."""
    fits = x.dtype == torch.bfloat16 and x.shape[1] % 8 == 0 and x.is_contiguous(memory_format=torch.channels_last)
    if fits and has_kernels(x):
        return _ReluMaxPool.apply(x)  # type: ignore[no-any-return,no-untyped-call]
    return F.max_pool2d(F.relu(x), 3, stride=2, padding=1)


class _ReluMaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        b, c, height, width = x.shape
        out = _empty(x, (b, c, (height + 1) // 2, (width + 1) // 2))
        places = torch.empty(out.numel(), dtype=torch.uint8, device=x.device)
        ctx.sizes = (height, width, c // 8, out.numel() // 8)
        ctx.save_for_backward(places)
        launch("relu_max_pool", out.numel() // 8, x, out, places, *ctx.sizes)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (places,) = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        b, c = gradient.shape[:2]
        out = _empty(gradient, (b, c, *ctx.sizes[:2]))
        launch("relu_max_pool_backward", gradient.numel() // 8, gradient, places, out, *ctx.sizes)
        return out


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)
