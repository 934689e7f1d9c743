"""What may stand for a style: features, features prepared once, or other samples of the content's own batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from efdm import kernels
from efdm.ops.layout import Rows, check_pair, to_rows
from efdm.ops.resample import resample_sorted


@dataclass(frozen=True, eq=False)
class PreparedStyle:
    """A style that is used again (video, a gallery): its values are sorted once. Made by `prepare`.

    Every matcher accepts it in place of the style. ``values`` is ``(b, c, m)``, ascending; with a mask, the first
    ``mask.sum()`` values of a sample are the selected ones. Values resampled for the last content size are remembered.
    """

    values: Tensor
    mask: Tensor | None = None
    _cache: dict[str, Tensor] = field(default_factory=dict, repr=False)  # by rule; every size would soon fill the memory

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def to(self, *args: object, **kwargs: object) -> PreparedStyle:
        """Move or convert, as `Tensor.to`."""
        values = self.values.to(*args, **kwargs)  # type: ignore[call-overload]
        return PreparedStyle(values, None if self.mask is None else self.mask.to(values.device))

    def resampled(self, n: int, sizes: str) -> Tensor:
        """The values at ``n`` ranks, for content without a mask."""
        if self.mask is None and n == self.values.shape[-1]:
            return self.values
        kept = self._cache.get(sizes)
        if kept is not None and kept.shape[-1] == n:
            return kept
        values = resample_sorted(self.values, n, sizes, style_n=self.rows().size())
        if kernels.is_eager(values):  # a tracer's tensors die with the trace
            self._cache[sizes] = values
        return values

    def rows(self) -> Rows:
        return Rows(self.values, (self.values.shape[-1],), self.mask)

    def __repr__(self) -> str:
        masked = "" if self.mask is None else ", masked"
        return f"PreparedStyle(shape={self.shape}, dtype={self.values.dtype}, device={self.values.device}{masked})"


@dataclass(frozen=True, eq=False)
class Partners:
    """Style the content by other samples of its own batch: sample ``i`` by sample ``index[i]``.

    The same as ``content[index]``, but a sort of the batch then serves as content and as style.
    """

    index: Tensor
    origin: str = "user"  # "drawn" by a pairing: known to be inside the batch

    def check(self, batch: int) -> None:
        if self.index.shape != (batch,) or self.index.dtype != torch.int64:
            given = f"{tuple(self.index.shape)} of {self.index.dtype}"
            raise ValueError(f"Partners needs one int64 index for each of {batch} samples, got shape {given}")
        if self.origin == "user" and not torch.compiler.is_compiling():
            inside = ((self.index >= 0) & (self.index < batch)).all()
            if self.index.device.type != "cpu":
                torch._assert_async(inside)  # without waiting for the device
            elif kernels.is_eager(inside) and not inside:
                raise IndexError(f"Partners {self.index.tolist()} are not all samples of a batch of {batch}")

    def weights(self, strength: float | Tensor, content: Tensor) -> Tensor:
        """How much of its partner's style each sample takes, ``(b,)``, as precise as what is computed with it."""
        batch = content.shape[0]
        self.check(batch)
        precise = torch.float64 if content.dtype == torch.float64 else torch.float32
        return torch.as_tensor(strength, dtype=precise, device=content.device).reshape(-1).expand(batch)

    def mask(self, content: Rows) -> Tensor | None:
        """The content's mask, as seen by the samples that are styled by it."""
        mask = content.mask
        return mask if mask is None or mask.shape[0] == 1 else mask.index_select(0, self.index)


Style = Tensor | PreparedStyle | Partners


def prepare(style: Tensor | PreparedStyle, *, channel_dim: int = 1, style_mask: Tensor | None = None) -> PreparedStyle:
    """Sort a style's values once, for use with many contents.

    >>> import torch
    >>> from efdm import efdm, prepare
    >>> style = prepare(torch.rand(1, 8, 16, 16))
    >>> frames = [torch.rand(1, 8, 16, 16) for _ in range(3)]
    >>> matched = [efdm(frame, style) for frame in frames]
    >>> style
    PreparedStyle(shape=(1, 8, 256), dtype=torch.float32, device=cpu)
    """
    if isinstance(style, PreparedStyle):
        _refuse_mask(style, style_mask)
        return style
    rows = to_rows(style.detach() if isinstance(style, Tensor) else style, "style", channel_dim, style_mask)
    values = kernels.sort_rows(rows.selected())
    if rows.mask is None:
        return PreparedStyle(values)
    first_ones = torch.arange(values.shape[-1], device=values.device) < rows.size()
    return PreparedStyle(values, first_ones)


def _refuse_mask(style: object, style_mask: Tensor | None) -> None:
    if style_mask is not None:
        raise ValueError(f"style_mask goes with style features; a {type(style).__name__} has its selection already")


def style_rows(style: Style, content: Rows, like: Tensor, channel_dim: int, style_mask: Tensor | None) -> Rows:
    """The style as rows, checked against the content."""
    if isinstance(style, Tensor):
        if style.dtype != like.dtype and torch.is_autocast_enabled(like.device.type):
            style = style.to(like.dtype)  # autocast leaves inputs of different layers in different types
        rows = to_rows(style, "style", channel_dim, style_mask)
        check_pair(content, rows, like, style.shape)
        return rows
    _refuse_mask(style, style_mask)
    if isinstance(style, Partners):
        style.check(content.values.shape[0])
        return Rows(content.values.index_select(0, style.index), content.space, style.mask(content))
    if not isinstance(style, PreparedStyle):
        raise TypeError(f"style must be a tensor, a PreparedStyle or Partners, got {type(style).__name__}")
    if style.values.dtype != like.dtype and torch.is_autocast_enabled(like.device.type):
        style = style.to(like.dtype)
    rows = style.rows()
    check_pair(content, rows, like, style.shape)
    return rows
