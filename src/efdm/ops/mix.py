"""Content and matched features, mixed: the trade-off of style transfer, EFDMix and MixStyle are one formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.kernels.reference import lerp
from efdm.ops import gradient
from efdm.ops.choices import check_choice, check_known, options_of
from efdm.ops.moments import MIX_EPS
from efdm.ops.styles import Partners, Style
from efdm.ops.table import MATCHERS


def blend(content: Tensor, matched: Tensor, strength: float | Tensor) -> Tensor:
    r""":math:`(1-w)\,x + w\,m` for strength :math:`w`: 0 is the content and 1 the matched features, exactly.

    ``strength`` is a number from 0 to 1 or one for each sample, ``(b,)``. Gradient: :math:`1-w` to the content, :math:`w`
    to the matched features. Between a finite and an infinite value the result may be infinite or NaN.

    >>> import torch
    >>> from efdm import blend
    >>> blend(torch.zeros(2, 1, 3), torch.ones(2, 1, 3), torch.tensor([0.0, 0.25]))[:, 0, 0]
    tensor([0.0000, 0.2500])
    """
    if content.shape != matched.shape:
        raise ValueError(f"content has shape {tuple(content.shape)}, matched {tuple(matched.shape)}; they must agree")
    if not content.is_floating_point() or content.dtype != matched.dtype:
        raise TypeError(f"content is {content.dtype}, matched {matched.dtype}; convert both to one floating-point type")
    strength = _share("strength", strength, content, "content", "matched")
    if isinstance(strength, Tensor):
        return lerp(content, matched, strength.to(content.device))
    if strength in (0, 1):
        return matched if strength else content
    return lerp(content, matched, torch.tensor([strength], dtype=torch.float64, device=content.device))


def _share(name: str, share: float | Tensor, content: Tensor, at_0: str, at_1: str) -> float | Tensor:
    """A number from 0 to 1, or a tensor with one for all or for each sample; whatever else is told by its name."""
    if isinstance(share, Tensor):
        if share.ndim > 1 or (share.ndim == 1 and share.shape[0] not in (1, content.shape[0])):
            raise ValueError(f"{name} has shape {tuple(share.shape)}; expected a number or ({content.shape[0]},)")
        return share
    if isinstance(share, (list, tuple)):
        raise TypeError(f"{name} is a {type(share).__name__}; give a number, or a tensor with one for each sample")
    share = float(share)
    if not 0 <= share <= 1:
        raise ValueError(f"{name}={share} is outside 0 ({at_0}) to 1 ({at_1})")
    return share


_USUAL = {
    "ties": ("fast", "stable"),
    "style_grad": ("stop",),
}  # what the fast ways within a batch do if nothing else is said
# the gradient to the content is for `mix_features` to decide
_OPTIONS = {name: tuple(o for o in options_of(row.function) if o != "content_grad") for name, row in MATCHERS.items()}


def mix_features(content: Tensor, style: Style, lam: float | Tensor, method: str = "efdm", **options: object) -> Tensor:
    """Match with a row of `MATCHERS`, used as an augmentation, and keep the share ``lam`` of the content.

    Exact matchers keep a gradient of exactly 1 towards the content, whatever ``lam`` is.
    """
    check_choice("method", method, MATCHERS)
    row = MATCHERS[method]
    check_known(method, _OPTIONS[method], options)
    lam = _share("lam", lam, content, "the style", "the content")
    if not isinstance(lam, Tensor) and lam == 1:
        return content
    learns = isinstance(lam, Tensor) and lam.requires_grad
    every = {**row.augmentation, **options}
    said = {k: v for k, v in every.items() if v is not None and v not in _USUAL.get(k, ())}
    within = isinstance(style, Partners) and row.mix_partners is not None and said.keys() <= row.fast_options
    if within and not learns and not kernels.is_exporting():
        mixed = row.mix_partners(content, style, 1 - lam, **said)  # type: ignore[misc]
        return gradient.straight_through(content, mixed) if row.straight_through else mixed
    if not row.straight_through:
        return blend(content, row(content, style, **every), 1 - lam)
    matched = row(content, style, content_grad="stop", **every)
    return gradient.straight_through(content, blend(gradient.detached(content), matched, 1 - lam))


def efdmix(
    content: Tensor,
    style: Style,
    lam: float | Tensor,
    *,
    ties: str = "fast",
    style_grad: str = "stop",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Exact feature distribution mixing (paper, equation 8): :math:`x + (1-\lambda)(\mathrm{EFDM}(x, y)-\langle x\rangle)`.

    ``lam=1`` is the content and ``lam=0`` is `efdm`, exactly; a number or one for each sample. The gradient towards the
    content is 1, not ``lam``; towards the style 0, or :math:`1-\lambda` with ``style_grad="flow"``.

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
        ties=ties, style_grad=style_grad, channel_dim=channel_dim,
        content_mask=content_mask, style_mask=style_mask, generator=generator,
    )  # fmt: skip


def mixstyle(
    content: Tensor,
    style: Style,
    lam: float | Tensor,
    *,
    eps: float = MIX_EPS,
    style_grad: str = "stop",
    content_stats: str = "stop",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""MixStyle: :math:`\frac{x-\mu_x}{s_x}(\lambda s_x+(1-\lambda)s_y)+\lambda\mu_x+(1-\lambda)\mu_y`, statistics detached.

    The same as blending the content with `adain`, which is how it is computed; with `Partners` each value is scaled and
    shifted once, which loses digits in channels that are nearly flat and far from zero. Gradient towards the content:
    :math:`\lambda+(1-\lambda)s_y/s_x`.

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
    r"""Several styles at once (paper, section 4.1): :math:`\sum_k w_k\,\mathrm{match}(x, y_k)`.

    The weights are divided by their sum; one style with all the weight gives that match exactly. ``options`` go to the
    matcher. Gradient: the weighted sum; none to the weights, which are read as numbers.

    >>> import torch
    >>> from efdm import interpolate_styles
    >>> x = torch.tensor([[[0.0, 1.0]]])
    >>> interpolate_styles(x, [x + 10, x + 20], weights=[1, 3])
    tensor([[[17.5000, 18.5000]]])
    """
    check_choice("method", method, MATCHERS)
    styles, shares = list(styles), [float(w) for w in weights]
    if len(shares) != len(styles) or not styles:
        raise ValueError(f"{len(styles)} styles and {len(shares)} weights; give one weight for each of at least one style")
    total = sum(shares)
    if min(shares) < 0 or not 0 < total < math.inf:  # neither is true of NaN
        raise ValueError(f"weights {shares} must be finite, must not be negative and must not all be zero")
    parts = [(w / total, y) for w, y in zip(shares, styles, strict=True) if w > 0]
    matched = [(w, MATCHERS[method](content, y, **options)) for w, y in parts]
    if len(matched) == 1:
        return matched[0][1]
    return torch.stack([w * upcast(m) for w, m in matched]).sum(0).to(content.dtype)
