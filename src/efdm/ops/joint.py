"""Matching of the joint distribution of all channels: along rotated axes, and by whitening and colouring.

These matchers compute in float32 at least. A value that is not finite spreads to all channels of its sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from efdm import kernels
from efdm.kernels.floats import upcast
from efdm.ops import gradient
from efdm.ops.choices import ContentGrad, check_choice
from efdm.ops.layout import Rows, from_rows, to_rows, where_selected
from efdm.ops.match import efdm
from efdm.ops.moments import moments_of_rows
from efdm.ops.styles import PreparedStyle, Style, prepare, style_rows

_T = TypeVar("_T")
Start = Literal["wct", "none"]
Finish = Literal["channels", "none"]
Axes = Literal["random", "principal"]
STARTS, FINISHES, AXES = get_args(Start), get_args(Finish), get_args(Axes)
EPS = 1e-5  # added to the eigenvalues of a covariance, times their mean; keeps constant channels finite
SEED = 0  # of the rotations, unless a generator is given
NEWTON_STEPS = 30  # enough for a condition number of 1e8; features of VGG-19 need 16


def match_jointly(
    content: Tensor,
    style: Style,
    *,
    rotations: int = 10,
    iterations: int = 1,
    axes: Axes = "random",
    step: float = 1.0,
    start: Start = "wct",
    finish: Finish = "channels",
    content_grad: ContentGrad = "identity",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Match the joint distribution of the channels approximately, by exact matches along rotated axes.

    With random orthonormal matrices :math:`R`, :math:`x \leftarrow R^\top\,\mathrm{EFDM}(Rx, Ry)` is repeated (Pitié et al.,
    2007). In hundreds of channels it converges faster from features that `wct` has matched already.

    Args:
        rotations: Number of different rotations, each of which needs one match.
        iterations: Number of passes over the rotations.
        axes: ``"principal"`` replaces the very first random rotation by the principal axes of the style.
        step: Factor, below 2, by which values move in all matches but the last. With principal axes, 1.5 comes closer to the
            style in as many rotations.
        start: ``"wct"`` matches means and covariances first.
        finish: ``"channels"`` matches every channel once more, as `efdm` does, so that its values are exactly those of the
            style. ``"none"`` leaves the joint distribution slightly closer to the style.
        generator: Draws the rotations. By default they are the same in all calls, and those of a `PreparedStyle` are applied
            and sorted once.

    The style receives no gradient. Repeated matches amplify rounding errors, so results may differ visibly between devices.
    The other arguments are those of `efdm`.

    >>> import torch
    >>> from efdm.ops import match_jointly
    >>> x, y = torch.rand(1, 2, 500), torch.rand(1, 1, 500) * torch.tensor([[[1.0], [-1.0]]])
    >>> matched = match_jointly(x, y)  # channels of the style are opposite to each other
    >>> bool(matched.sum(1).abs().mean() < 0.1)
    True
    """
    check_choice("start", start, STARTS)
    check_choice("finish", finish, FINISHES)
    if rotations < 0 or iterations < 0:
        raise ValueError(f"rotations and iterations must be >= 0, got {rotations} and {iterations}")
    check_choice("axes", axes, AXES)
    if not 0 < step < 2:
        raise ValueError(f"step must be between 0 and 2, got {step}")

    def match(x: Rows, target: _Target) -> Tensor:
        values = _wct(x, target, EPS) if start == "wct" else x.values
        count, passes = rotations, iterations if rotations else 0
        if axes == "principal" and passes:
            count -= 1
            basis, style = target.principal()
            values = basis @ _match_exactly(basis.mT @ values, x, style, step if count else 1.0)
        if count and passes:
            turns, back = _rotations(values, count, generator)
            steps = iter([step] * (count * passes - 1) + [1.0])
            for _ in range(passes):
                for turn, style in zip(turns, target.rotated(turns, generator), strict=True):
                    values = _match_exactly(turn @ values, x, style, next(steps))
                values = back @ values
        return _match_exactly(values, x, target.channels()) if finish == "channels" else values

    return _apply(match, content, style, content_grad, channel_dim, content_mask, style_mask)


def wct(
    content: Tensor,
    style: Style,
    *,
    eps: float = EPS,
    content_grad: ContentGrad = "identity",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Match means and covariances by whitening and colouring (WCT; Li et al., 2017).

    Returns :math:`\Sigma_y^{1/2}\,\Sigma_x^{-1/2}(x-\mu_x)+\mu_y`. ``eps`` times the mean eigenvalue is added to each
    eigenvalue. Arguments and gradients are those of `match_jointly`.

    >>> import torch
    >>> from efdm.ops import wct
    >>> x, y = torch.rand(1, 3, 100, dtype=torch.float64), torch.rand(1, 3, 80, dtype=torch.float64).cumsum(1)
    >>> torch.allclose(wct(x, y, eps=0)[0].cov(), y[0].cov())
    True
    """
    return _apply(lambda x, y: _wct(x, y, eps), content, style, content_grad, channel_dim, content_mask, style_mask)


def match_principal(
    content: Tensor,
    style: Style,
    *,
    content_grad: ContentGrad = "identity",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    """Match exactly along the principal axes of the style instead of its channels.

    This is `match_jointly` with the principal axes as its only rotation. Arguments and gradients are the same.
    """
    return match_jointly(
        content, style, rotations=1, axes="principal", start="none", finish="none",
        content_grad=content_grad, channel_dim=channel_dim, content_mask=content_mask, style_mask=style_mask,
    )  # fmt: skip


class _Target:
    """A style in the precision of the computation. Results for a `PreparedStyle` are cached in it."""

    def __init__(self, rows: Rows, prepared: PreparedStyle | None) -> None:
        self.rows, self.prepared = rows.with_values(upcast(rows.values)), prepared

    def _cached(self, key: object, make: Callable[[], _T]) -> _T:
        cache: dict[Any, Any] = {} if self.prepared is None else self.prepared._cache
        if not kernels.is_eager(self.rows.values):  # tensors of a tracer must not outlive the trace
            return make()
        if key not in cache:
            cache[key] = make()
        return cache[key]  # type: ignore[no-any-return]

    def _sort(self, values: Tensor) -> PreparedStyle:
        made = prepare(values, style_mask=_mask(self.rows))
        return PreparedStyle(made.values, made.mask)  # without the unsorted values

    def channels(self) -> PreparedStyle:
        """Return the sorted channels."""
        given, values = self.prepared, self.rows.values
        if given is None:
            return self._sort(values)
        return given if given.dtype == values.dtype else self._cached("channels", lambda: given.to(values))

    def rotated(self, turns: Tensor, generator: torch.Generator | None) -> Iterable[PreparedStyle]:
        """Return the values sorted along the axes of every rotation, cached unless a generator drew the rotations."""

        def make() -> Iterator[PreparedStyle]:
            values = self.rows.values
            for turn in turns:
                values = turn @ values
                yield self._sort(values)

        if self.prepared is None or generator is not None:
            return make()
        return self._cached(("rotated", len(turns)), lambda: list(make()))

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return means ``(b, c, 1)`` and covariances ``(b, c, c)``."""
        return self._cached("moments", lambda: _moments(self.rows)[::2])

    def root(self, eps: float) -> Tensor:
        """Return the square root of the covariances."""
        return self._cached(("root", eps), lambda: _roots(self.moments()[1], eps)[0])

    def principal(self) -> tuple[Tensor, PreparedStyle]:
        """Return the principal axes ``(b, c, c)`` and the values sorted along them."""

        def make() -> tuple[Tensor, PreparedStyle]:
            axes = torch.linalg.eigh(self.moments()[1])[1]
            return axes, self._sort(axes.mT @ self.rows.values)

        return self._cached("principal", make)


def _apply(
    match: Callable[[Rows, _Target], Tensor],
    content: Tensor,
    style: Style,
    content_grad: ContentGrad,
    channel_dim: int,
    content_mask: Tensor | None,
    style_mask: Tensor | None,
) -> Tensor:
    """Apply ``match`` to the rows of content and style, and attach the gradient of the content."""
    check_choice("content_grad", content_grad)
    x = to_rows(gradient.detached(content), "content", channel_dim, content_mask)
    y = style_rows(style, x, content, channel_dim, style_mask)
    prepared = style if isinstance(style, PreparedStyle) else None
    if prepared is not None:
        if prepared.features is None:
            raise ValueError("a joint match needs the features of a style, not only sorted values; use efdm.prepare")
        y = prepared.features
    with torch.no_grad(), torch.autocast(content.device.type, enabled=False):  # autocast would rotate in half precision
        values = match(x.with_values(upcast(x.values)), _Target(y, prepared)).to(content.dtype)
    out = from_rows(where_selected(values, x.values, x, y), gradient.detached(content), channel_dim)
    return gradient.straight_through(content, out) if content_grad == "identity" else out


def _mask(rows: Rows) -> Tensor | None:
    return None if rows.mask is None else rows.mask.squeeze(1)


def _match_exactly(values: Tensor, x: Rows, style: PreparedStyle, step: float = 1.0) -> Tensor:
    matched = efdm(values, style, content_mask=_mask(x), content_grad="stop")
    return matched if step == 1 else torch.lerp(values, matched, step)


def _wct(x: Rows, target: _Target, eps: float) -> Tensor:
    _, centered, covariance = _moments(x)
    return target.root(eps) @ _roots(covariance, eps)[1] @ centered + target.moments()[0]


def _moments(rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return means ``(b, c, 1)``, centered values with zeros outside the mask, and covariances ``(b, c, c)``."""
    mean, _ = moments_of_rows(rows)
    centered, count = rows.values - mean, rows.size()
    if rows.mask is not None:
        centered = torch.where(rows.mask, centered, 0)
    divisor = (count - 1).clamp(min=1) if isinstance(count, Tensor) else max(count - 1, 1)
    return mean, centered, centered @ centered.mT / divisor


def _roots(covariance: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the symmetric square roots of covariances ``(b, c, c)`` and their inverses, computed in float64."""
    wide = covariance.to(torch.float32 if covariance.device.type == "mps" else torch.float64)
    eye = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device)
    mean = wide.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    wide = wide + eps * (mean + EPS) * eye
    if wide.device.type == "cpu" and not kernels.is_exporting():
        values, axes = torch.linalg.eigh(wide)
        scaled = [axes * (values.clamp(min=0) ** power).unsqueeze(-2) for power in (0.5, -0.5)]
        root, inverse = (s @ axes.mT for s in scaled)
    else:
        # Newton-Schulz iteration: eigh takes ten times as long on a GPU, synchronizes it, and is not an ONNX operator
        norm = wide.norm(dim=(-2, -1), keepdim=True)
        root, inverse = wide / norm, eye
        for _ in range(NEWTON_STEPS):
            step = 1.5 * eye - 0.5 * inverse @ root
            root, inverse = root @ step, step @ inverse
        root, inverse = root * norm.sqrt(), inverse / norm.sqrt()
    return root.to(covariance.dtype), inverse.to(covariance.dtype)


def _rotations(like: Tensor, count: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return random rotations ``(count, c, c)``, each relative to the one before, and the one back to the channels."""
    c = like.shape[1]
    rotations = fixed_rotations(c, count, like.device, like.dtype) if generator is None else _draw(c, count, generator)
    return rotations[:-1].to(like), rotations[-1].to(like)


def _draw(channels: int, count: int, generator: torch.Generator) -> Tensor:
    # one after another, so that the first rotations do not depend on their number
    options = {"dtype": torch.float64, "device": generator.device, "generator": generator}
    drawn = torch.stack([torch.randn(channels, channels, **options) for _ in range(count)])  # type: ignore[call-overload]
    bases = torch.linalg.qr(drawn)[0]
    eye = torch.eye(channels, dtype=bases.dtype, device=bases.device)[None]
    before = torch.cat([eye, bases]).mT
    return torch.cat([bases, eye]) @ before


def fixed_rotations(channels: int, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the rotations of calls without a generator and, last, the one back to the channels: ``(count + 1, c, c)``."""
    return _draw_fixed(channels, count, device, dtype)


# as torch.compiler.assume_constant_result does, which would import the compiler with this module
fixed_rotations._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=16)
def _draw_fixed(channels: int, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    with _disable_current_modes():  # a tracer would record the drawing
        return _draw(channels, count, torch.Generator().manual_seed(SEED)).to(device, dtype)
