"""Exact matching: sort-matching (EFDM) and classical histogram matching (HM)."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm import kernels
from efdm.ops import gradient
from efdm.ops.choices import check_choice
from efdm.ops.layout import Rows, from_rows, same_size, to_rows, where_selected
from efdm.ops.resample import fraction, resample_sorted
from efdm.ops.styles import Partners, PreparedStyle, Style, style_rows
from efdm.ops.ties import TIES, rank_of, tie_bounds
from efdm.shapes import Style as StyleValues
from efdm.shapes import Values, checked


def efdm(
    content: Tensor,
    style: Style,
    *,
    ties: str = "fast",
    style_grad: str = "stop",
    content_grad: str = "identity",
    sizes: str = "interpolate",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Exact feature distribution matching: the content's order, the style's values.

    Per sample and channel, :math:`o_{\tau_i} = y_{\kappa_i}` where :math:`\tau` sorts the content and :math:`\kappa` the
    style (paper, equation 4). The sorted output equals the sorted style bit for bit, in every floating-point type.

    Gradient: the identity towards the content, and nothing is saved for it. Towards the style none
    (``style_grad="stop"``, the paper), or each output's gradient to the style value it received (``"flow"``, the authors'
    released code). ``content_grad="stop"`` leaves out the identity, for a target that is only looked at.

    Args:
        content: ``(b, c, *space)``, or any order of dimensions with ``channel_dim`` set (-1 for NHWC and tokens).
        style: the same with any space and a batch of ``b`` or 1; or a `PreparedStyle`; or `Partners`.
        ties: order among equal content values. ``"fast"``: whatever the kernel gives; ``"stable"``: by position;
            ``"random"``: shuffled; ``"neighbor"``: by the sum over the value and its direct neighbours.
        sizes: when the style has another number of values, ``"interpolate"`` its order statistics at mid-ranks or take
            the ``"nearest"``.
        content_mask, style_mask: boolean, the features' shape without channels (and batch, if one serves all). Only
            selected content is changed, only selected style counts; a sample with an empty selection stays as it is.
        generator: for ``ties="random"``.

    NaN sorts last, on both sides.

    >>> import torch
    >>> from efdm import efdm
    >>> x, y = torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]), torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]])
    >>> efdm(x, y, ties="stable")
    tensor([[[0.0000, 0.3000, 0.1000, 0.5000, 0.4000]]])
    """
    check_choice("ties", ties)
    check_choice("sizes", sizes)
    plain = content_mask is style_mask is None and channel_dim == 1 and TIES[ties] is None
    if plain and style_grad == "stop" and content_grad == "identity":
        matched = _fast_path(content, style)
        if matched is not None:
            return gradient.straight_through(content, matched)
    x, y = _open(content, style, style_grad, channel_dim, content_mask, style_mask)
    if isinstance(style, Partners):
        # one sort of the batch gives the ranks of the content and the sorted values of every style
        values, rank = rank_of(x, x.ranked(), ties, generator)
        if x.mask is not None:
            values = gradient.sort_rows(x.selected())
        matched = gradient.take(_fit(x, y, values.index_select(0, style.index), sizes), rank)
    else:
        matched = _match(x, y, style, ties, sizes, generator)
    return _close(content, matched, x, y, content_grad, channel_dim)


def _fast_path(content: Tensor, style: Style) -> Tensor | None:
    """The plain case, contiguous and of one size, or nothing. On a GPU a small match is over before all checks are."""
    if not isinstance(content, Tensor) or kernels.is_exporting() or content.ndim < 3 or not content.is_contiguous():
        return None
    if isinstance(style, Tensor):
        if content.shape != style.shape or not style.is_contiguous():
            return None
        y, match = gradient.detached(style).flatten(2), "sort_match"
    elif isinstance(style, PreparedStyle) and style.mask is None:
        y, match = style.values, "match_sorted"
    else:
        return None
    x = gradient.detached(content).flatten(2)
    alike = x.shape == y.shape and x.dtype == y.dtype and x.device == y.device
    if not alike or not x.is_floating_point() or not x.numel():
        return None
    return getattr(kernels, match)(x, y).view_as(content)


def _open(
    content: Tensor,
    style: Style,
    style_grad: str,
    channel_dim: int,
    content_mask: Tensor | None,
    style_mask: Tensor | None,
) -> tuple[Rows, Rows]:
    """Content and style as rows. Only a style that may flow carries a gradient; partners are styles and contents."""
    check_choice("style_grad", style_grad)
    flows = style_grad == "flow"
    if flows and isinstance(style, PreparedStyle):
        raise ValueError("a prepared style carries no gradient; pass the style's features, or leave style_grad='stop'")
    if isinstance(style, Partners):
        if style_mask is not None:
            raise ValueError("style_mask goes with style features; Partners are selected by content_mask")
        style.check(content.shape[0])
        x = to_rows(content if flows else gradient.detached(content), "content", channel_dim, content_mask)
        return x, x._replace(mask=style.mask(x))  # who matches sorts x and picks from the sorted rows
    x = to_rows(gradient.detached(content), "content", channel_dim, content_mask)
    y = style_rows(style, x, content, channel_dim, style_mask)
    if flows:
        gradient.reject_forward_mode(y.values)
    return x, (y._replace(values=y.values.detach()) if not flows and y.values.requires_grad else y)


def _match(x: Rows, y: Rows, style: Style, ties: str, sizes: str, generator: torch.Generator | None) -> Tensor:
    whole = x.mask is None and y.mask is None
    flows = y.values.requires_grad and torch.is_grad_enabled()
    by_position = TIES[ties] is None
    if whole and by_position and not flows and isinstance(style, Tensor) and same_size(x.values, y.values):
        return kernels.sort_match(x.values, y.values.expand_as(x.values))
    if isinstance(style, PreparedStyle) and x.mask is None:
        values = style.resampled(x.values.shape[-1], sizes).expand_as(x.values)
    else:
        ordered = y.values if isinstance(style, PreparedStyle) else gradient.sort_rows(y.selected())
        values = _fit(x, y, ordered, sizes)
    if by_position and not flows:
        return kernels.match_sorted(x.ranked(), values)
    return gradient.take(values, rank_of(x, x.ranked(), ties, generator)[1])


def _fit(x: Rows, y: Rows, ordered: Tensor, sizes: str) -> Tensor:
    """The style's sorted values as one value for each rank of the content."""
    n = x.values.shape[-1]
    if x.mask is not None or y.mask is not None or not same_size(x.values, ordered):
        ordered = ordered.expand(x.values.shape[0], -1, -1)  # masks may differ where the style is one for all
        ordered = resample_sorted(ordered, n, sizes, style_n=y.size(), content_n=x.size())
    return ordered.expand_as(x.values)


def _close(content: Tensor, matched: Tensor, x: Rows, y: Rows, content_grad: str, channel_dim: int) -> Tensor:
    """Untouched where the masks say so, shaped like the content, and with the gradient asked for."""
    check_choice("content_grad", content_grad)
    matched = where_selected(matched, gradient.detached(x.values), x, y)
    values = from_rows(matched, gradient.detached(content), channel_dim)
    return gradient.straight_through(content, values) if content_grad == "identity" else values


def mix_partners(content: Tensor, partners: Partners, strength: float | Tensor, channel_dim: int = 1) -> Tensor:
    """The values of EFDMix within a batch, ties by position, without gradient: the fused way of training."""
    x = to_rows(gradient.detached(content), "content", channel_dim)
    weight = partners.weights(strength, content)
    return from_rows(kernels.mix_partners(x.values, partners.index, weight), gradient.detached(content), channel_dim)


def histogram_match(
    content: Tensor,
    style: Style,
    *,
    style_grad: str = "stop",
    content_grad: str = "identity",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Classical histogram matching (HM): every value goes to the style's quantile, equal values stay equal.

    With :math:`F_x(v)` the share of content values not above :math:`v`, and the same for the style, a value goes to
    :math:`F_y^{-1}(F_x(v))`, linear between the style's distinct values. It equals scikit-image's ``match_histograms`` on
    every channel, and `efdm` when the content has no ties and the sizes agree. Arguments and gradient as in `efdm`.

    >>> import torch
    >>> from efdm import histogram_match
    >>> x, y = torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]), torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]])
    >>> histogram_match(x, y)
    tensor([[[0.1000, 0.4000, 0.1000, 0.5000, 0.4000]]])
    """
    x, y = _open(content, style, style_grad, channel_dim, content_mask, style_mask)
    sorted_x, rank = gradient.sort_rank(x.ranked())
    if isinstance(style, Partners):
        own = sorted_x if x.mask is None else gradient.sort_rows(x.selected())
        sorted_y = own.index_select(0, style.index)
    else:
        sorted_y = y.values if isinstance(style, PreparedStyle) else gradient.sort_rows(y.selected())
    at_rank = _read_quantiles(sorted_x.detach(), sorted_y.expand(x.values.shape[0], -1, -1), x.size(), y.size())
    return _close(content, gradient.take(at_rank, rank), x, y, content_grad, channel_dim)


@checked
def _read_quantiles(x: Values, y: StyleValues, n: int | Tensor, m: int | Tensor) -> Values:
    """For every sorted content value, the style's value at the same share; n and m are the true counts."""
    _, upto = tie_bounds(x)
    first, last = tie_bounds(y)
    # The content's share is upto/n. Among the m style values that is place upto*m/n, kept as a fraction of whole numbers.
    at = torch.div(upto * m - 1, n.clamp(min=1) if isinstance(n, Tensor) else n, rounding_mode="floor")
    at = torch.minimum(at, m - 1).clamp(min=0) if isinstance(m, Tensor) else at.clamp(min=0, max=m - 1)
    start, end = first.gather(-1, at), last.gather(-1, at)
    high = y.gather(-1, at)
    low = y.gather(-1, (start - 1).clamp(min=0))
    share = fraction(upto * m - start * n, (end - start) * n, y.dtype)
    between = torch.lerp(low, high, share.clamp(max=1))
    # below the first distinct value there is nothing to interpolate with; at a whole place the value is exact
    exact = (start == 0) | (upto * m >= end * n) | (low == high)
    return torch.where(exact, high, between)
