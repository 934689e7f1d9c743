"""Mixing of content and matched features: style strength, EFDMix, MixStyle and style interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.kernels.reference import lerp
from efdm.ops import gradient
from efdm.ops.choices import ContentStats, StyleGrad, Ties, check_choice, check_known, options_of
from efdm.ops.moments import MIX_EPS
from efdm.ops.styles import Partners, Style
from efdm.ops.table import MATCHERS


def blend(content: Tensor, matched: Tensor, strength: float | Tensor) -> Tensor:
    r"""Return :math:`(1-w)\,x + w\,m` for strength :math:`w`, content :math:`x` and matched features :math:`m`.

    ``strength`` is a number from 0 to 1 or a tensor with one number per sample, ``(b,)``. Strength 0 returns the content and
    strength 1 the matched features, exactly. The gradient is :math:`1-w` with respect to the content and :math:`w` with
    respect to the matched features. Blending a finite with an infinite value may give infinity or NaN.

    >>> import torch
    >>> from efdm import blend
    >>> blend(torch.zeros(2, 1, 3), torch.ones(2, 1, 3), torch.tensor([0.0, 0.25]))[:, 0, 0]
    tensor([0.0000, 0.2500])
    """
    for name, features in (("content", content), ("matched", matched)):
        if not isinstance(features, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(features).__name__}")
    if content.shape != matched.shape:
        raise ValueError(f"content has shape {tuple(content.shape)}, matched has {tuple(matched.shape)}; they must be equal")
    if not content.is_floating_point() or content.dtype != matched.dtype:
        raise TypeError(f"content is {content.dtype}, matched is {matched.dtype}; convert both to one floating-point type")
    strength = check_weight("strength", strength, content, "content", "matched")
    if isinstance(strength, Tensor):
        return lerp(content, matched, strength.to(content.device))
    if strength in (0, 1):
        return matched if strength else content
    return lerp(content, matched, torch.full((1,), strength, dtype=torch.float64, device=content.device))


def check_weight(name: str, weight: float | Tensor, content: Tensor, at_0: str, at_1: str) -> float | Tensor:
    """Return ``weight`` if it is a number from 0 to 1, or a tensor with one number for all samples or one per sample."""
    if isinstance(weight, Tensor):
        if weight.ndim > 1 or (weight.ndim == 1 and weight.shape[0] not in (1, *content.shape[:1])):
            expected = f"a number or ({content.shape[0]},)" if content.ndim else "a number"
            raise ValueError(f"{name} has shape {tuple(weight.shape)}; expected {expected}")
        return weight
    if not hasattr(weight, "__float__"):
        raise TypeError(f"{name} must be a number or a tensor with one number per sample, got {type(weight).__name__}")
    weight = float(weight)
    if not 0 <= weight <= 1:
        raise ValueError(f"{name} must be between 0 ({at_0}) and 1 ({at_1}), got {weight}")
    return weight


# values that the fused functions implement by default
_FAST_VALUES = {"ties": ("fast", "stable"), "tolerance": (0,), "style_grad": ("stop",)}
# content_grad is not an option of `mix_features`, which defines the gradient itself
_OPTIONS = {name: tuple(o for o in options_of(row.function) if o != "content_grad") for name, row in MATCHERS.items()}


def mix_features(content: Tensor, style: Style, lam: float | Tensor, method: str = "efdm", **options: object) -> Tensor:
    """Match with a row of `MATCHERS` and blend: weight ``lam`` for the content, ``1 - lam`` for the matched features.

    Options default to the row's ``augmentation``. The gradient of exact matchers with respect to the content is 1 for every
    ``lam``.

    >>> import torch
    >>> from efdm.ops import Partners, mix_features
    >>> x = torch.tensor([[[0.0, 1.0]], [[10.0, 20.0]]])
    >>> mix_features(x, Partners([1, 0]), lam=0.5, method="adamean")
    tensor([[[ 7.2500,  8.2500]],
    <BLANKLINE>
            [[ 2.7500, 12.7500]]])
    """
    check_choice("method", method, MATCHERS)
    row = MATCHERS[method]
    check_known(method, _OPTIONS[method], options)
    lam = check_weight("lam", lam, content, "style", "content")
    if not isinstance(lam, Tensor) and lam == 1:
        return content
    learnable = isinstance(lam, Tensor) and lam.requires_grad
    merged = {**row.augmentation, **options}
    special = {k: v for k, v in merged.items() if v is not None and v not in _FAST_VALUES.get(k, ())}
    fused = isinstance(style, Partners) and row.mix_partners is not None and special.keys() <= row.fast_options
    if fused and not learnable and not kernels.is_exporting():
        return row.mix_partners(content, style, 1 - lam, **special)  # type: ignore[misc]
    if not row.straight_through:
        return blend(content, row(content, style, **merged), 1 - lam)
    matched = row(content, style, content_grad="stop", **merged)
    return gradient.straight_through(content, blend(gradient.detached(content), matched, 1 - lam))


def efdmix(
    content: Tensor,
    style: Style,
    lam: float | Tensor,
    *,
    ties: Ties = "fast",
    tolerance: float = 0.0,
    style_grad: StyleGrad = "stop",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Exact feature distribution mixing (EFDMix): blend the content with `efdm` (paper, equation 10).

    Returns :math:`x + (1-\lambda)\,(\mathrm{EFDM}(x, y) - \langle x\rangle)`, where :math:`\langle x\rangle` is detached.
    ``lam`` is a number from 0 to 1 or a tensor with one number per sample, ``(b,)``. ``lam=1`` returns the content and
    ``lam=0`` returns `efdm`, exactly. The gradient with respect to the content is 1, not ``lam``; with respect to the style
    it is 0, or :math:`1-\lambda` with ``style_grad="flow"``. The other arguments are those of `efdm`.

    >>> import torch
    >>> from efdm import efdmix
    >>> x = torch.tensor([[[0.0, 1.0, 2.0]], [[30.0, 20.0, 10.0]]])
    >>> efdmix(x, x.flip(0), lam=0.5)
    tensor([[[ 5.0000, 10.5000, 16.0000]],
    <BLANKLINE>
            [[16.0000, 10.5000,  5.0000]]])
    """
    return mix_features(
        content, style, lam, "efdm",
        ties=ties, tolerance=tolerance, style_grad=style_grad, channel_dim=channel_dim,
        content_mask=content_mask, style_mask=style_mask, generator=generator,
    )  # fmt: skip


def mixstyle(
    content: Tensor,
    style: Style,
    lam: float | Tensor,
    *,
    eps: float = MIX_EPS,
    style_grad: StyleGrad = "stop",
    content_stats: ContentStats = "stop",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""MixStyle: :math:`\frac{x-\mu_x}{s_x}(\lambda s_x+(1-\lambda)s_y)+\lambda\mu_x+(1-\lambda)\mu_y`, statistics detached.

    Computed as a blend of the content with `adain`, which is equivalent. With `Partners`, each value is scaled and shifted
    once, which loses digits in nearly constant channels far from zero. The gradient with respect to the content is
    :math:`\lambda+(1-\lambda)s_y/s_x`. ``lam`` is that of `efdmix`; the other arguments are those of `adain`.

    >>> import torch
    >>> from efdm import mixstyle
    >>> x = torch.tensor([[[0.0, 1.0, 2.0]], [[10.0, 20.0, 30.0]]])
    >>> mixstyle(x, x.flip(0), lam=0.5, eps=0)
    tensor([[[ 5.0000, 10.5000, 16.0000]],
    <BLANKLINE>
            [[ 5.0000, 10.5000, 16.0000]]])
    """
    return mix_features(
        content, style, lam, "adain",
        eps=eps, style_grad=style_grad, content_stats=content_stats, channel_dim=channel_dim,
        content_mask=content_mask, style_mask=style_mask,
    )  # fmt: skip


def interpolate_styles(
    content: Tensor,
    styles: Sequence[Style],
    weights: Sequence[float] | Tensor,
    *,
    method: str = "efdm",
    **options: object,
) -> Tensor:
    r"""Interpolate several styles (paper, section 4.1): return :math:`\sum_k w_k\,\mathrm{match}(x, y_k)`.

    The weights are divided by their sum and are not differentiated. A single style with positive weight gives its match
    exactly. ``options`` are passed to the matcher.

    >>> import torch
    >>> from efdm import interpolate_styles
    >>> x = torch.tensor([[[0.0, 1.0]]])
    >>> interpolate_styles(x, [x + 10, x + 20], weights=[1, 3])
    tensor([[[17.5000, 18.5000]]])
    """
    check_choice("method", method, MATCHERS)
    styles, shares = list(styles), [float(w) for w in weights]
    if len(shares) != len(styles) or not styles:
        raise ValueError(f"got {len(styles)} styles and {len(shares)} weights; expected one weight per style, at least one")
    total = sum(shares)
    if min(shares) < 0 or not 0 < total < math.inf:  # also rejects NaN
        raise ValueError(f"weights must be finite, non-negative and not all zero, got {shares}")
    parts = [(w / total, y) for w, y in zip(shares, styles, strict=True) if w > 0]
    matched = [(w, MATCHERS[method](content, y, **options)) for w, y in parts]
    if len(matched) == 1:
        return matched[0][1]
    return torch.stack([w * upcast(m) for w, m in matched]).sum(0).to(content.dtype)
