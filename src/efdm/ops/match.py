"""Exact matching: sort-matching (EFDM) and histogram matching (HM)."""

from __future__ import annotations

import torch
from torch import Tensor

from efdm import kernels
from efdm.kernels import reference
from efdm.ops import gradient
from efdm.ops.choices import ContentGrad, Sizes, StyleGrad, Ties, check_choice, check_tolerance
from efdm.ops.layout import Rows, from_rows, same_size, to_rows, where_selected
from efdm.ops.resample import resample_sorted
from efdm.ops.styles import Partners, PreparedStyle, Style, partner_mask, partner_weights, reject_mask, style_rows
from efdm.ops.ties import TIES, match_sorted, sort_rank
from efdm.shapes import Style as StyleValues
from efdm.shapes import Values, checked


def efdm(
    content: Tensor,
    style: Style,
    *,
    ties: Ties = "fast",
    tolerance: float = 0.0,
    style_grad: StyleGrad = "stop",
    content_grad: ContentGrad = "identity",
    sizes: Sizes = "interpolate",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Exact feature distribution matching: return the values of the style in the order of the content.

    In each channel of each sample, :math:`o_{\tau_i} = y_{\kappa_i}`, where :math:`\tau` sorts the content and
    :math:`\kappa` sorts the style (paper, equation 4). The sorted output equals the sorted style bit for bit in every
    floating-point dtype. NaN sorts last in content and style.

    Args:
        content: Features ``(b, c, *space)``, or another order of dimensions with ``channel_dim``.
        style: Features of any spatial size with the channels of the content and batch size ``b`` or 1, a `PreparedStyle`,
            or `Partners`.
        ties: Order of equal content values. ``"fast"``: unspecified; ``"stable"``: by position; ``"random"``: shuffled;
            ``"neighbor"``: by the sum over each value and its direct spatial neighbors.
        tolerance: If positive, a content value :math:`x` receives the mean of the style values of all ranks whose content
            is within ``tolerance`` standard deviations of :math:`x`. Equal content receives equal values, and ``ties`` has
            no effect. Noise in nearly constant areas no longer spreads over all values of the style, at the price of an
            output that does not have exactly the style's distribution. Rows with an infinite value, or with NaN in the
            style, are matched exactly.
        style_grad: Gradient with respect to the style. ``"stop"``: none, as in the paper; ``"flow"``: each style value
            receives the gradient of the outputs it was assigned to, as in the authors' code.
        content_grad: Gradient with respect to the content. ``"identity"``: as if matching were the identity; ``"stop"``:
            none, for a constant target. Nothing is saved for backward.
        sizes: Resampling of a style with a different number of values: ``"interpolate"`` its order statistics at the
            mid-ranks of the content, or take the ``"nearest"`` ones.
        channel_dim: Dimension of the channels in content and style: -1 for NHWC features and tokens.
        content_mask, style_mask: Boolean masks of shape ``(*space)`` or ``(b, *space)``. Only selected content is changed,
            and only selected style values are used. Samples with an empty selection are returned unchanged.
        generator: Generator for ``ties="random"``.

    >>> import torch
    >>> from efdm import efdm
    >>> x, y = torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]), torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]])
    >>> efdm(x, y, ties="stable")
    tensor([[[0.0000, 0.3000, 0.1000, 0.5000, 0.4000]]])
    """
    check_choice("ties", ties)
    check_choice("sizes", sizes)
    check_tolerance(tolerance)
    plain = content_mask is style_mask is None and channel_dim == 1 and (TIES[ties] is None or tolerance)
    if plain and style_grad == "stop" and content_grad == "identity":
        matched = _fast_path(content, style, tolerance)
        if matched is not None:
            return gradient.straight_through(content, matched)
    x, y, partner = _to_rows(content, style, style_grad, channel_dim, content_mask, style_mask)
    if partner is not None:
        # one sort of the batch gives the ranks of every content and the sorted values of every style
        values, rank = sort_rank(x, ties, generator)
        paired = _resample(x, y, values.index_select(0, partner), sizes)
        paired = gradient.tolerant_values(values.detach(), paired, tolerance) if tolerance else paired
        matched = gradient.take(paired, rank)
    else:
        matched = _match(x, y, style, ties, sizes, generator, tolerance)
    return _from_rows(content, matched, x, y, content_grad, channel_dim)


def _fast_path(content: Tensor, style: Style, tolerance: float) -> Tensor | None:
    """Match contiguous features of equal size, or return None. On a GPU, full validation takes longer than a small match."""
    if not isinstance(content, Tensor) or kernels.is_exporting() or content.ndim < 3 or not content.is_contiguous():
        return None
    if isinstance(style, Tensor):
        if content.shape != style.shape or not style.is_contiguous():
            return None
        y, is_sorted = gradient.detached(style).flatten(2), False
    elif isinstance(style, PreparedStyle) and style.mask is None:
        y, is_sorted = style.values, True
    else:
        return None
    x = gradient.detached(content).flatten(2)
    compatible = x.shape == y.shape and x.dtype == y.dtype and x.device == y.device
    if not compatible or not x.is_floating_point() or not x.numel():
        return None
    if tolerance:
        return kernels.tolerant_match(x, y if is_sorted else kernels.sort_rows(y), tolerance).view_as(content)
    return (kernels.match_sorted if is_sorted else kernels.sort_match)(x, y).view_as(content)


def _to_rows(
    content: Tensor,
    style: Style,
    style_grad: StyleGrad,
    channel_dim: int,
    content_mask: Tensor | None,
    style_mask: Tensor | None,
) -> tuple[Rows, Rows, Tensor | None]:
    """Convert content and style to rows. Only rows that act as a style with ``style_grad="flow"`` carry a gradient.

    For `Partners`, the style rows are those of the content with the masks of the partners, and the index is returned.
    """
    check_choice("style_grad", style_grad)
    flow = style_grad == "flow"
    if flow and isinstance(style, PreparedStyle):
        raise ValueError("a PreparedStyle carries no gradient; pass style features, or use style_grad='stop'")
    if isinstance(style, Partners):
        reject_mask(style, style_mask)
        x = to_rows(content if flow else gradient.detached(content), "content", channel_dim, content_mask)
        partner = style.on(content)
        return x, Rows(x.values, x.space, partner_mask(x, partner)), partner
    x = to_rows(gradient.detached(content), "content", channel_dim, content_mask)
    y = style_rows(style, x, content, channel_dim, style_mask)
    if flow:
        gradient.reject_forward_mode(y.values)
    return x, (y.with_values(y.values.detach()) if not flow and y.values.requires_grad else y), None


def _match(
    x: Rows, y: Rows, style: Style, ties: Ties, sizes: Sizes, generator: torch.Generator | None, tolerance: float
) -> Tensor:
    if (
        x.mask is None and y.mask is None and TIES[ties] is None and not tolerance and isinstance(style, Tensor)
        and same_size(x.values, y.values) and not gradient.needs_grad(y.values)
    ):  # fmt: skip
        return kernels.sort_match(x.values, y.values.expand_as(x.values))
    if isinstance(style, PreparedStyle) and x.mask is None:
        values = style.resampled(x.values.shape[-1], sizes).expand_as(x.values)
    else:
        ordered = y.values if isinstance(style, PreparedStyle) else gradient.sort_rows(y.selected())
        values = _resample(x, y, ordered, sizes)
    return match_sorted(x, values, ties, generator, tolerance)


def _resample(x: Rows, y: Rows, ordered: Tensor, sizes: Sizes) -> Tensor:
    """Return one value of the sorted style for each rank of the content."""
    n = x.values.shape[-1]
    if x.mask is not None or y.mask is not None or not same_size(x.values, ordered):
        ordered = ordered.expand(x.values.shape[0], -1, -1)  # content masks may differ per sample
        ordered = resample_sorted(ordered, n, sizes, style_n=y.size(), content_n=x.size())
    return ordered.expand_as(x.values)


def _from_rows(content: Tensor, matched: Tensor, x: Rows, y: Rows, content_grad: ContentGrad, channel_dim: int) -> Tensor:
    """Apply the masks, restore the layout of the content and attach its gradient."""
    check_choice("content_grad", content_grad)
    matched = where_selected(matched, gradient.detached(x.values), x, y)
    values = from_rows(matched, gradient.detached(content), channel_dim)
    return gradient.straight_through(content, values) if content_grad == "identity" else values


def mix_partners(
    content: Tensor, partners: Partners, strength: float | Tensor, *, style_grad: StyleGrad = "stop", channel_dim: int = 1
) -> Tensor:
    """Return EFDMix within a batch, computed by fused kernels. Ties by position."""
    check_choice("style_grad", style_grad)
    x = to_rows(gradient.detached(content), "content", channel_dim)
    partner, weight = partners.on(content), partner_weights(strength, content)
    if style_grad == "flow" and gradient.needs_grad(content):
        return gradient.within_batch("mix", content, channel_dim, partner, weight)
    mixed = kernels.mix_partners(x.values, partner, weight)
    return gradient.straight_through(content, from_rows(mixed, gradient.detached(content), channel_dim))


def histogram_match(
    content: Tensor,
    style: Style,
    *,
    style_grad: StyleGrad = "stop",
    content_grad: ContentGrad = "identity",
    channel_dim: int = 1,
    content_mask: Tensor | None = None,
    style_mask: Tensor | None = None,
) -> Tensor:
    r"""Histogram matching (HM): map every content value to the style value of the same quantile.

    A content value :math:`v` becomes :math:`F_y^{-1}(F_x(v))`, where :math:`F(v)` is the fraction of values not above
    :math:`v`, interpolated linearly between the distinct values of the style. Equal values stay equal. The result equals
    scikit-image's ``match_histograms`` in every channel, and `efdm` if neither has ties and the sizes are equal.
    Arguments and gradients are those of `efdm`.

    >>> import torch
    >>> from efdm import histogram_match
    >>> x, y = torch.tensor([[[0.0, 0.1, 0.0, 0.2, 0.1]]]), torch.tensor([[[0.1, 0.0, 0.4, 0.3, 0.5]]])
    >>> histogram_match(x, y)
    tensor([[[0.1000, 0.4000, 0.1000, 0.5000, 0.4000]]])
    """
    x, y, partner = _to_rows(content, style, style_grad, channel_dim, content_mask, style_mask)
    sorted_x, rank = sort_rank(x, "stable")
    if partner is not None:
        sorted_y = sorted_x.index_select(0, partner)
    else:
        sorted_y = y.values if isinstance(style, PreparedStyle) else gradient.sort_rows(y.selected())
        sorted_y = sorted_y.expand(x.values.shape[0], -1, -1)
    at_rank = _read_quantiles(sorted_x.detach(), sorted_y, x, y)
    return _from_rows(content, gradient.take(at_rank, rank), x, y, content_grad, channel_dim)


@checked
def _read_quantiles(sorted_x: Values, sorted_y: StyleValues, x: Rows, y: Rows) -> Values:
    """Return the style value at the quantile of every rank of the content, with a gradient with respect to the style."""
    if x.mask is None and y.mask is None and same_size(sorted_x, sorted_y) and not gradient.needs_grad(sorted_y):
        return kernels.quantile_values(sorted_x, sorted_y)
    return reference.quantile_values(sorted_x, sorted_y, (x.size(), y.size()))
