"""Base class of all feature layers: activation, feature layout and random draws."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from sys import float_info
from typing import Any

import torch
from torch import Tensor, nn

from efdm.kernels import is_exporting
from efdm.nn.domains import in_backward
from efdm.ops.choices import check_known
from efdm.ops.layout import check_features

_RANGES = {
    "p": (0.0, 1.0, "a probability from 0 to 1"),
    "alpha": (1e-6, float_info.max, "finite and >= 1e-6"),  # smaller values give NaN
    "eps": (0.0, float_info.max, "finite and >= 0"),
    "strength": (0.0, float_info.max, "finite and >= 0"),
}  # fmt: skip


def check_ranges(**settings: Any) -> None:
    """Raise TypeError or ValueError unless all settings are numbers in the range of their name."""
    for name, value in settings.items():
        smallest, largest, expected = _RANGES[name]
        if not isinstance(value, Real):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not smallest <= float(value) <= largest:
            raise ValueError(f"{name} must be {expected}, got {value}")


def check_batch(images: Tensor, targets: Tensor) -> None:
    """Raise unless images and targets can be averaged: floating-point images, and targets given as probabilities."""
    if not images.is_floating_point():
        raise ValueError(f"images must be floating point, got {images.dtype}; convert with images.float() / 255")
    if targets.ndim != 2 or not targets.is_floating_point() or targets.shape[0] != images.shape[0]:
        raise ValueError(
            f"targets must be probabilities of shape ({images.shape[0]}, classes), got {tuple(targets.shape)} of "
            f"{targets.dtype}; convert labels with one_hot(labels, classes).float()"
        )


class FeatureLayer(nn.Module):
    """Change features at random, in training mode only. `mix_after` inserts any feature layer into a model.

    A subclass implements ``transform``, and lists the settings to print in ``settings``. ``transform`` is called in every
    training step unless ``p`` is 0, so it draws its own gate with `efdm.nn.draw.gate`, because reading a draw back from a
    GPU would synchronize it. A subclass may also define ``p`` differently, as `DropBlock` does (a share of the features).

    Args:
        p: how often, or how strongly, the layer acts. 0 disables the layer at no cost.
        channel_dim: -1 for NHWC features and token sequences. Defaults to the layout found by `mix_after`, otherwise 1.
        prefix: number of leading tokens (class token, registers) to leave unchanged. Defaults to the layout found by
            `mix_after`, otherwise 0.
        generator: a generator on the features' device. Defaults to torch's own, which `torch.manual_seed` seeds.
    """

    _warned = False  # about features of unknown layout, once per layer

    def __init__(
        self,
        p: float,
        *,
        channel_dim: int | None = None,
        prefix: int | None = None,
        generator: torch.Generator | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        self.check_options(unknown)
        check_ranges(p=p)
        if not isinstance(channel_dim, int | None) or not isinstance(prefix, int | None):
            raise TypeError(f"channel_dim and prefix must be integers, got {channel_dim!r} and {prefix!r}")
        if channel_dim == 0:
            raise ValueError("channel_dim must not be 0, which is the batch; use 1 (NCHW) or -1 (NHWC, tokens)")
        self.p, self.channel_dim, self.prefix, self.generator = p, channel_dim, prefix, generator
        self.active = True
        self.layout((-1, 0))  # raises for settings that are invalid with every layout

    def check_options(self, options: Mapping[str, object], also: Sequence[str] = ()) -> None:
        """Raise for options that are neither arguments of the layer nor in ``also``, and for invalid choices."""
        arguments = [a for cls in (type(self), FeatureLayer) for a in inspect.signature(cls).parameters.values()]
        known = dict.fromkeys([a.name for a in arguments if a.kind is not a.VAR_KEYWORD] + [*also])
        check_known(type(self).__name__, known, options)

    def layout(self, known: tuple[int, int] = (1, 0)) -> tuple[int, int]:
        """Return ``(channel_dim, prefix)``: the layer's own settings, completed by a known layout."""
        channel_dim = known[0] if self.channel_dim is None else self.channel_dim
        prefix = known[1] if self.prefix is None else self.prefix
        if prefix < 0:
            raise ValueError(f"prefix must be a number of tokens >= 0, got {prefix}")
        if prefix and channel_dim == 1:
            raise ValueError(f"prefix={prefix} requires tokens with channels last; pass channel_dim=-1 as well, or prefix=0")
        return channel_dim, prefix

    def forward(self, features: Tensor, domains: Tensor | None = None, layout: tuple[int, int] | None = None) -> Tensor:
        """Return the changed features.

        ``domains`` are the labels of this batch and default to those passed to the model. ``layout`` is
        ``(channel_dim, prefix)`` as found by `mix_after` and overrides the layer's own.
        """
        if not (self.training and self.active) or self.p == 0:
            return features
        channel_dim, prefix = self.layout() if layout is None else layout
        self.check(features, channel_dim)
        if features.shape[0] == 0:
            return features
        if is_exporting():
            raise RuntimeError("call model.eval() before exporting: feature layers act in training mode only")
        if not torch.compiler.is_compiling():
            if self.generator is not None and in_backward():
                raise RuntimeError(
                    "gradient checkpointing repeats this forward, but cannot restore the layer's own generator; use "
                    "generator=None, or exclude the layer from checkpointing"
                )
            if layout is None and self.channel_dim is None and features.ndim == 3 and not self._warned:
                self._warned = True
                warnings.warn(
                    f"features of shape {tuple(features.shape)} are taken for (batch, channels, length); pass "
                    "channel_dim=-1 for tokens (batch, tokens, channels), or channel_dim=1 to silence this warning",
                    stacklevel=4,
                )
        if not prefix:
            return self.transform(features, domains, channel_dim)
        if features.ndim != 3 or features.shape[1] <= prefix:
            raise ValueError(
                f"prefix={prefix} requires features (batch, tokens, channels) with more than {prefix} tokens, got shape "
                f"{tuple(features.shape)}"
            )
        return torch.cat([features[:, :prefix], self.transform(features[:, prefix:], domains, channel_dim)], 1)

    def check(self, features: Tensor, channel_dim: int) -> None:
        """Raise if the layer cannot change such features, whether or not this call's gate is open."""
        check_features(features, "features", channel_dim)

    def transform(self, features: Tensor, domains: Tensor | None, channel_dim: int) -> Tensor:
        """Return the changed features; the prefix has been removed."""
        raise NotImplementedError(f"{type(self).__name__} must implement transform(features, domains, channel_dim)")

    def settings(self) -> dict[str, object]:
        """Return the settings to print."""
        return {"p": self.p}

    def extra_repr(self) -> str:
        generator = None if self.generator is None else f"<{self.generator.device}>"
        set_here = {"channel_dim": self.channel_dim, "prefix": self.prefix, "generator": generator}
        shown = self.settings() | {name: value for name, value in set_here.items() if value is not None}
        if not self.active:
            shown["active"] = False
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())
