"""What a matcher accepts as style: features, a prepared style, or partners within the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from efdm import kernels
from efdm.ops.choices import Sizes
from efdm.ops.layout import Rows, check_pair, to_rows
from efdm.ops.resample import resample_sorted


@dataclass(frozen=True, eq=False)
class PreparedStyle:
    """A style whose values are sorted once, to be matched with many contents. Created by `prepare`.

    Every matcher accepts it in place of style features. ``values`` ``(b, c, m)`` are ascending. With a mask, the selected
    values come first: ``mask`` ``(b or 1, 1, m)`` is True for the first ``mask.sum()`` values of a sample. ``features`` are
    the unsorted values and their mask, which joint matchers need. Values resampled for the most recent content size are
    cached, and so are those that a joint matcher rotated and sorted.
    """

    values: Tensor
    mask: Tensor | None = None
    features: Rows | None = None
    # resampled values by `sizes`, for the last content size only, to bound memory; joint matchers add keys of their own
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    def to(self, *args: object, **kwargs: object) -> PreparedStyle:
        """Move or convert the values, with the arguments of `Tensor.to`."""
        rows = self.rows().to(*args, **kwargs)
        return PreparedStyle(rows.values, rows.mask, self.features and self.features.to(*args, **kwargs))

    def resampled(self, n: int, sizes: Sizes) -> Tensor:
        """Return the values resampled to ``n`` ranks, for content without a mask."""
        # while exporting, comparing n would fix the size in the graph
        if self.mask is None and not kernels.is_exporting() and n == self.values.shape[-1]:
            return self.values
        cached = self._cache.get(sizes)
        if cached is not None and cached.shape[-1] == n:
            return cached
        values = resample_sorted(self.values, n, sizes, style_n=self.rows().size())
        if kernels.is_eager(values):  # tensors of a tracer must not outlive the trace
            self._cache[sizes] = values
        return values

    def rows(self) -> Rows:
        return Rows(self.values, (self.values.shape[-1],), self.mask)

    def __repr__(self) -> str:
        masked = "" if self.mask is None else ", masked"
        return f"PreparedStyle(shape={self.shape}, dtype={self.values.dtype}, device={self.values.device}{masked})"


@dataclass(frozen=True, eq=False, init=False)
class Partners:
    """Use other samples of the content batch as styles: sample ``index[i]`` is the style of sample ``i``.

    ``index`` is an int64 tensor ``(b,)`` or a sequence of integers. Equivalent to the style ``content[index]``, but each
    sample is sorted only once. Indices of origin ``"drawn"`` come from a pairing and are not checked against the batch size.
    """

    index: Tensor
    origin: Literal["user", "drawn"] = "user"

    def __init__(self, index: Tensor | Sequence[int], origin: Literal["user", "drawn"] = "user") -> None:
        if not isinstance(index, Tensor):
            try:
                index = torch.as_tensor(index)
            except (TypeError, ValueError, RuntimeError):
                raise TypeError(f"Partners expects integer indices, got {type(index).__name__} {index!r}") from None
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "origin", origin)

    def on(self, content: Tensor) -> Tensor:
        """Return the index on the device of ``content``. Raise if it does not address the batch of ``content``."""
        index, batch = self.index, content.shape[0]
        if index.shape != (batch,) or index.dtype != torch.int64:
            actual = f"shape {tuple(index.shape)} and {index.dtype}"
            raise ValueError(f"Partners needs one int64 index for each of {batch} samples, got {actual}")
        if self.origin == "user" and not torch.compiler.is_compiling():
            inside = ((index >= 0) & (index < batch)).all()
            if index.device.type != "cpu":
                torch._assert_async(inside)  # does not synchronize the device
            elif kernels.is_eager(inside) and not inside:
                raise IndexError(f"partner indices must be in [0, {batch}) for a batch of {batch}, got {index.tolist()}")
        return index if index.device == content.device else index.to(content.device)


Style = Tensor | PreparedStyle | Partners


def prepare(style: Tensor | PreparedStyle, *, channel_dim: int = 1, style_mask: Tensor | None = None) -> PreparedStyle:
    """Sort the values of a style once, to match it with many contents.

    >>> import torch
    >>> from efdm import efdm, prepare
    >>> style = prepare(torch.rand(1, 8, 16, 16))
    >>> frames = [torch.rand(1, 8, 16, 16) for _ in range(3)]
    >>> matched = [efdm(frame, style) for frame in frames]
    >>> style
    PreparedStyle(shape=(1, 8, 256), dtype=torch.float32, device=cpu)
    """
    if isinstance(style, PreparedStyle):
        reject_mask(style, style_mask)
        return style
    rows = to_rows(style.detach() if isinstance(style, Tensor) else style, "style", channel_dim, style_mask)
    values = kernels.sort_rows(rows.selected())
    if rows.mask is None:
        return PreparedStyle(values, features=rows)
    return PreparedStyle(values, torch.arange(values.shape[-1], device=values.device) < rows.size(), rows)


def reject_mask(style: Style, style_mask: Tensor | None) -> None:
    """Raise ValueError if a mask is combined with a style other than features."""
    if style_mask is None:
        return
    if isinstance(style, Partners):
        raise ValueError("style_mask cannot be combined with Partners; content_mask also selects the values of partners")
    raise ValueError("style_mask cannot be combined with a PreparedStyle; pass it to prepare")


def style_rows(style: Style, content: Rows, like: Tensor, channel_dim: int, style_mask: Tensor | None) -> Rows:
    """Convert the style to rows and check them against the content."""
    if isinstance(style, Partners):
        reject_mask(style, style_mask)
        index = style.on(content.values)
        return Rows(content.values.index_select(0, index), content.space, partner_mask(content, index))
    if not isinstance(style, (Tensor, PreparedStyle)):
        raise TypeError(f"style must be a tensor, a PreparedStyle or Partners, got {type(style).__name__}")
    if style.dtype != like.dtype and torch.is_autocast_enabled(like.device.type):
        style = style.to(like.dtype)  # under autocast, features of different layers may differ in dtype
    if isinstance(style, Tensor):
        rows = to_rows(style, "style", channel_dim, style_mask)
    else:
        reject_mask(style, style_mask)
        rows = style.rows()
    check_pair(content, rows, like, tuple(style.shape))
    return rows


def partner_mask(content: Rows, index: Tensor) -> Tensor | None:
    """Return the mask of each sample's partner."""
    mask = content.mask
    return mask if mask is None or mask.shape[0] == 1 else mask.index_select(0, index)


def partner_weights(strength: float | Tensor, content: Tensor) -> Tensor:
    """Return ``strength`` as one weight per sample, ``(b,)``, in the precision of the computation."""
    dtype = torch.float64 if content.dtype == torch.float64 else torch.float32
    return torch.as_tensor(strength, dtype=dtype, device=content.device).reshape(-1).expand(content.shape[0])
