"""Conversion between features ``(b, c, *space)`` and rows ``(b, c, n)``: channel order, masks and memory format."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from efdm.kernels import in_func_transform, is_eager, is_exporting


class Rows(NamedTuple):
    """Features with a flattened space, ``(b, c, n)``. The mask is ``(b or 1, 1, n)``, or None to select all values."""

    values: Tensor
    space: tuple[int, ...] | torch.Size
    mask: Tensor | None

    def with_values(self, values: Tensor) -> Rows:
        """Return the same rows with other values."""
        return Rows(values, self.space, self.mask)  # not _replace, which torch.compile does not support in torch 2.6

    def selected(self) -> Tensor:
        """Return the values with NaN, which sorts last, where the mask is False."""
        return self.values if self.mask is None else torch.where(self.mask, self.values, torch.nan)

    def to(self, *args: object, **kwargs: object) -> Rows:
        """Move or convert the values, with the arguments of `Tensor.to`, and move the mask with them."""
        values = self.values.to(*args, **kwargs)  # type: ignore[call-overload]
        return Rows(values, self.space, None if self.mask is None else self.mask.to(values.device))

    def size(self) -> int | Tensor:
        """Return the number of selected values: an integer, or ``(b or 1, 1, 1)`` with a mask."""
        return self.values.shape[-1] if self.mask is None else self.mask.sum(-1, keepdim=True)


def check_features(features: Tensor, role: str, channel_dim: int) -> None:
    """Raise TypeError or ValueError unless ``features`` are floats ``(batch, channels, *space)``. ``role`` names them."""
    if not isinstance(features, Tensor):
        raise TypeError(f"{role} must be a tensor, got {type(features).__name__}")
    shape, ndim = features.shape, features.ndim
    if not features.is_floating_point():
        raise TypeError(f"{role} {tuple(shape)} has dtype {features.dtype}; convert it to a floating-point type")
    if ndim < 3:
        raise ValueError(f"{role} has shape {tuple(shape)}; expected (batch, channels, *space) with at least 3 dimensions")
    if not -ndim <= channel_dim < ndim or channel_dim % ndim == 0:
        raise ValueError(f"channel_dim={channel_dim} is not a dimension of {role} {tuple(shape)} after the batch")
    if not is_exporting() and 0 in shape[1:]:
        raise ValueError(f"{role} has shape {tuple(shape)}; channels and space must not be empty")


def _mask_rows(mask: Any, role: str, like: Tensor) -> Tensor:
    """Convert a mask ``(*space)`` or ``(b, *space)`` to ``(b or 1, 1, n)`` on the device of ``like`` ``(b, c, *space)``."""
    if not isinstance(mask, Tensor):
        try:
            mask = torch.as_tensor(mask)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{role}_mask must be a boolean tensor or array, got {type(mask).__name__}") from None
    if mask.dtype != torch.bool:
        raise TypeError(f"{role}_mask has dtype {mask.dtype}; expected bool, for example mask > 0.5")
    batch, space, shape = like.shape[0], tuple(like.shape[2:]), tuple(mask.shape)
    if shape == space:
        mask = mask.unsqueeze(0)
    elif shape not in ((batch, *space), (1, *space)):
        raise ValueError(
            f"{role}_mask has shape {shape}; expected {space} or {(batch, *space)}, the shape of {role} without channels"
        )
    return mask.to(like.device).flatten(1).unsqueeze(1)


def to_rows(features: Tensor, role: str, channel_dim: int, mask: Tensor | None = None) -> Rows:
    """Validate features and their mask and convert them to rows."""
    check_features(features, role, channel_dim)
    channels_first = features if channel_dim == 1 else features.movedim(channel_dim, 1)
    rows = None if mask is None else _mask_rows(mask, role, channels_first)
    return Rows(channels_first.flatten(2), channels_first.shape[2:], rows)


def from_rows(values: Tensor, like: Tensor, channel_dim: int) -> Tensor:
    """Convert rows to the shape of ``like``, and to its memory format except during export and in torch.func."""
    if channel_dim == 1:
        features = values.view_as(like)  # four times as fast as `view` with a shape
    else:
        features = values.view_as(like.movedim(channel_dim, 1)).movedim(1, channel_dim)
    if is_exporting() or in_func_transform() or features.stride() == like.stride():
        return features
    out = torch.empty_like(like)
    # backward through separate samples would copy the whole gradient once per sample
    if not values.requires_grad and _is_large_channels_last(out, channel_dim):
        for matrix, rows in zip(out.flatten(2), values, strict=True):
            matrix.t().copy_(rows.t())
        return out
    return out.copy_(features)


# Torch transposes a single matrix in blocks that fit the cache, but not a batch of matrices. The batched copy takes four
# times as long if the number of positions is a power of two, because the values of a position share a cache set.
_MIN_VALUES = 1 << 16  # minimum per sample: with fewer values, the calls take longer than the copies


def _is_large_channels_last(t: Tensor, channel_dim: int) -> bool:
    """Return True for a channels-last CPU tensor with large samples."""
    plain = t.device.type == "cpu" and is_eager(t) and channel_dim == 1
    return plain and t[:1].numel() >= _MIN_VALUES and t.is_contiguous(memory_format=torch.channels_last)


def same_size(x: Tensor, y: Tensor) -> bool:
    """Return True if rows have equal length. During export return False, because the result would become a guard."""
    return not is_exporting() and x.shape[-1] == y.shape[-1]


def check_pair(content: Rows, style: Rows, like: Tensor, style_shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the style fits the content in channels, batch, device and dtype."""
    x, y = content.values, style.values
    if same_size(x, y) and x.shape == y.shape and x.dtype == y.dtype and x.device == y.device:
        return
    content_shape, style_shape = tuple(like.shape), tuple(style_shape)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"style has {y.shape[1]} channels, content has {x.shape[1]} (shapes {style_shape} and {content_shape}); "
            "take both from the same layer, convert both images to RGB, or set channel_dim"
        )
    if y.shape[0] not in (1, x.shape[0]):
        raise ValueError(
            f"style has batch size {y.shape[0]}, content has {x.shape[0]} (shapes {style_shape} and {content_shape}); "
            "the batch size of the style must be 1 or that of the content"
        )
    if x.device != y.device:
        raise ValueError(f"content is on {x.device}, style on {y.device}; move both to one device")
    if x.dtype != y.dtype:
        raise ValueError(f"content is {x.dtype}, style is {y.dtype}; convert one, for example style.to(content.dtype)")


def where_selected(matched: Tensor, content: Tensor, x: Rows, y: Rows) -> Tensor:
    """Return ``matched`` where the content is selected and the style selection is not empty, otherwise ``content``."""
    if x.mask is None and y.mask is None:
        return matched
    selected = torch.ones_like(matched[:, :1], dtype=torch.bool) if x.mask is None else x.mask
    if y.mask is not None:
        selected = selected & y.mask.any(-1, keepdim=True)
    return torch.where(selected, matched, content)
