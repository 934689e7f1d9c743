"""Features in, rows out, and back: the one place that knows about channel order, masks and memory format."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from efdm.kernels import in_func_transform, is_eager, is_exporting


class Rows(NamedTuple):
    """Features as ``(b, c, n)`` with the space flattened; mask is ``(b or 1, 1, n)`` or None (everything)."""

    values: Tensor
    space: tuple[int, ...] | torch.Size
    mask: Tensor | None

    def selected(self) -> Tensor:
        """The values, with NaN (which sorts last) where the mask is false."""
        return self.values if self.mask is None else torch.where(self.mask, self.values, torch.nan)

    def ranked(self) -> Tensor:
        """`selected` for ranking alone: a NaN of the selection ranks before everything outside of it."""
        if self.mask is None:
            return self.values
        known = torch.where(self.values.isnan(), torch.inf, self.values)
        return torch.where(self.mask, known, torch.nan)

    def size(self) -> int | Tensor:
        """How many positions count: one number, or (b or 1, 1, 1) with a mask."""
        return self.values.shape[-1] if self.mask is None else self.mask.sum(-1, keepdim=True)


def check_features(features: Tensor, role: str, channel_dim: int) -> None:
    if not isinstance(features, Tensor):
        raise TypeError(f"{role} must be a tensor, got {type(features).__name__}")
    ndim = features.ndim
    if not features.is_floating_point():
        shape = tuple(features.shape)
        raise TypeError(f"{role} {shape} has dtype {features.dtype}; convert it to a floating-point type first")
    if ndim < 3:
        shape = tuple(features.shape)
        raise ValueError(f"{role} has shape {shape}; expected (batch, channels, *space) with at least one space dimension")
    if not -ndim <= channel_dim < ndim or channel_dim % ndim == 0:
        shape = tuple(features.shape)
        raise ValueError(f"channel_dim={channel_dim} does not name a channel dimension of {role} {shape}; 0 is the batch")
    if not is_exporting() and 0 in features.shape[1:]:
        shape = tuple(features.shape)
        raise ValueError(f"{role} has shape {shape}: nothing to match in an empty channel or space dimension")


def _mask_rows(mask: Tensor, role: str, batch: int, space: tuple[int, ...]) -> Tensor:
    """(*space) or (b, *space) to (b or 1, 1, n)."""
    if mask.dtype != torch.bool:
        raise TypeError(f"{role}_mask has dtype {mask.dtype}; expected bool, for example mask > 0.5")
    shape = tuple(mask.shape)
    if shape == space:
        mask = mask.unsqueeze(0)
    elif shape not in ((batch, *space), (1, *space)):
        raise ValueError(
            f"{role}_mask has shape {shape}; expected {space} or {(batch, *space)}: the {role}'s shape without channels"
        )
    return mask.reshape(mask.shape[0], 1, -1)


def to_rows(features: Tensor, role: str, channel_dim: int, mask: Tensor | None = None) -> Rows:
    check_features(features, role, channel_dim)
    first = features if channel_dim == 1 else features.movedim(channel_dim, 1)
    space = first.shape[2:]
    rows = None if mask is None else _mask_rows(mask.to(features.device), role, first.shape[0], tuple(space))
    return Rows(first.flatten(2), space, rows)


def from_rows(values: Tensor, like: Tensor, channel_dim: int) -> Tensor:
    """Undo `to_rows`, in the memory format of `like` where there is one: not while exporting or within torch.func."""
    if channel_dim == 1:
        features = values.view_as(like)  # with a shape instead it takes four times as long
    else:
        features = values.view_as(like.movedim(channel_dim, 1)).movedim(1, channel_dim)
    if is_exporting() or in_func_transform() or features.stride() == like.stride():
        return features
    out = torch.empty_like(like)
    # a gradient would go back sample by sample, and copy the whole of it for each
    if not values.requires_grad and _large_and_last(out, channel_dim):
        for matrix, rows in zip(out.flatten(2), values, strict=True):
            matrix.t().copy_(rows.t())
        return out
    return out.copy_(features)


# Torch transposes one matrix at a time in blocks that stay in the cache. Several at once it does not, which takes four times
# as long where the places are a power of two and so the values of one place fall on the same line of the cache.
_LARGE = 1 << 16  # values of a sample: with smaller ones the calls take longer than the copies


def _large_and_last(t: Tensor, channel_dim: int) -> bool:
    """Whether it is on the CPU, with large samples and its channels last in memory alone."""
    plain = t.device.type == "cpu" and is_eager(t) and channel_dim == 1
    return plain and t[:1].numel() >= _LARGE and t.is_contiguous(memory_format=torch.channels_last)


def same_size(x: Tensor, y: Tensor) -> bool:
    """Whether the rows have one length. Never while exporting: the answer would become a condition on later inputs."""
    return not is_exporting() and x.shape[-1] == y.shape[-1]


def check_pair(content: Rows, style: Rows, like: Tensor, style_shape: tuple[int, ...]) -> None:
    x, y = content.values, style.values
    if same_size(x, y) and x.shape == y.shape and x.dtype == y.dtype and x.device == y.device:
        return
    content_shape, style_shape = tuple(like.shape), tuple(style_shape)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"style has {y.shape[1]} channels, content {x.shape[1]} (shapes {style_shape} and {content_shape}); "
            "take both from the same layer, convert both pictures to RGB, or set channel_dim"
        )
    if y.shape[0] not in (1, x.shape[0]):
        raise ValueError(
            f"style has a batch of {y.shape[0]}, content of {x.shape[0]} (shapes {style_shape} and {content_shape}); "
            "give one style for all or one for each"
        )
    if x.device != y.device:
        raise ValueError(f"content is on {x.device}, style on {y.device}; move both to one device")
    if x.dtype != y.dtype:
        raise ValueError(f"content is {x.dtype}, style {y.dtype}; convert one, for example style.to(content.dtype)")


def where_selected(matched: Tensor, content: Tensor, x: Rows, y: Rows) -> Tensor:
    """The matched rows where the content's mask is true and the style selects something, the content elsewhere."""
    if x.mask is None and y.mask is None:
        return matched
    selected = torch.ones_like(matched[:, :1], dtype=torch.bool) if x.mask is None else x.mask
    if y.mask is not None:
        selected = selected & y.mask.any(-1, keepdim=True)
    return torch.where(selected, matched, content)
