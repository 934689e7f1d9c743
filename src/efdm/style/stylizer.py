"""Pictures in the look of others."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from efdm.data import Picture, resize
from efdm.models import StyleNetwork
from efdm.models.weights import pretrained
from efdm.ops import MATCHERS, PreparedStyle, prepare
from efdm.ops.choices import check_choice
from efdm.style.color import COLORS
from efdm.style.look import Look, both, cells, check_mask, only_inside, shares, style_cells
from efdm.style.photoreal import PHOTOREAL
from efdm.style.pictures import AnyPicture, Size, opened, working_size
from efdm.style.tiles import in_shares, run_stage, tile_side
from efdm.style.transfer import restyled
from efdm.training import PRECISIONS
from efdm.training.device import default_device

Styles = AnyPicture | Sequence[AnyPicture]


class Region(NamedTuple):
    """Where a look goes: a mask ``(h, w)`` of the content, or everywhere."""

    mask: Tensor | None
    look: Look


class Stylizer:
    """A network that is ready to stylize: a copy of the one given, which stays as and where it is.

    >>> import torch
    >>> from efdm.models import build
    >>> from efdm.style.stylizer import Stylizer
    >>> stylizer = Stylizer(build("small"))  # random weights; Stylizer.from_pretrained() has trained ones
    >>> photo, painting = torch.rand(3, 40, 60), torch.rand(3, 64, 64)
    >>> stylizer.stylize(photo, painting, strength=0.8).shape
    torch.Size([3, 40, 60])
    >>> look = stylizer.prepare([painting, painting.flip(0)], weights=[3, 1])  # once, for any number of pictures
    >>> stylizer.stylize(photo, look, preserve_color="content").shape
    torch.Size([3, 40, 60])
    """

    def __init__(self, network: StyleNetwork, device: str | torch.device | None = None, *, precision: str = "fp32") -> None:
        check_choice("precision", precision, tuple(PRECISIONS))
        self.device = torch.device(device or default_device())
        self.precision, self.dtype = precision, PRECISIONS[precision]
        self.network = copy.deepcopy(network).eval().to(self.device, self.dtype)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @classmethod
    def from_pretrained(
        cls,
        name: str | None = None,
        device: str | torch.device | None = None,
        weights: str | Path | None = None,
        vgg: str | Path | None = None,
        *,
        precision: str = "fp32",
    ) -> Stylizer:
        """A trained model by name. ``weights`` is the file of a training of your own, ``vgg`` that of a VGG's encoder.

        Without a name it is the network that ``weights`` says it is of, or else "small".

        ``precision`` is fp32 or bf16; the latter is several times faster on a GPU and differs by less than paint does.
        """
        return cls(pretrained(name, weights=weights, vgg=vgg), device, precision=precision)

    def __repr__(self) -> str:
        return f"Stylizer({self.network.name}, device={self.device}, precision={self.precision})"

    @torch.no_grad()
    def prepare(
        self,
        styles: Styles,
        *,
        weights: Sequence[float] | None = None,
        size: Size = "auto",
        masks: Sequence[Tensor | None] | Tensor | None = None,
        tile: str | int = "auto",
    ) -> Look:
        """A style, or several that are mixed by ``weights`` (default: equally), made ready to be used many times.

        Args:
            size: short side at which the style is looked at, or "auto" or "full" as in `stylize`.
            masks: for each style ``(h, w)`` of bool, or None: only selected pixels count. What is transparent never does.
        """
        several = list(styles) if isinstance(styles, Sequence) and not isinstance(styles, str) else [styles]
        given = [None] * len(several) if masks is None else [masks] if isinstance(masks, Tensor) else list(masks)
        if len(given) != len(several):
            raise ValueError(f"{len(several)} styles and {len(given)} masks; give one mask (or None) for each style")
        weights = shares(weights, len(several))
        pictures, visible = [], []
        for style, mask in zip(several, given, strict=True):
            picture, opaque = self._open(style, "style")
            selected = both(self._mask(mask, picture, "style"), opaque)
            if selected is not None and not selected.any():
                raise ValueError("there is nothing to see of the style; it is transparent, at least where its mask is")
            visible.append(selected)
            pictures.append(resize(picture, working_size(picture, size)))
        features = [self._features(p, m, tile) for p, m in zip(pictures, visible, strict=True)]
        return Look(tuple(pictures), tuple(visible), weights, tuple(features))

    @torch.no_grad()
    def stylize(
        self,
        content: AnyPicture,
        style: Styles | Look | None = None,
        *,
        strength: float | Tensor = 1.0,
        method: str = "efdm",
        ties: str | None = None,
        preserve_color: str = "none",
        photoreal: str = "none",
        regions: Sequence[tuple[Tensor, Styles | Look]] | None = None,
        size: Size = "auto",
        tile: str | int = "auto",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The content in the style's look, in the content's size: ``(3, h, w)`` or ``(b, 3, h, w)``, in [0, 1].

        What is transparent does not count, and is not part of the result: to keep it, read the content with `read_picture`
        and give its ``alpha`` to `write_picture`.

        Args:
            strength: from 0, the content as the network sees it, to 1. One for each picture of a batch, if you like.
            method: a row of `MATCHERS`.
            ties: for methods that have it, the order of equal values; ``"random"`` draws from ``generator``.
            preserve_color: a row of `COLORS`: "none", "content" or "luminance".
            photoreal: a row of `PHOTOREAL`: "none", or a way to take all edges from the content.
            regions: pairs of a content mask ``(h, w)`` and its style, or a mask of ``style``: each region gets its own.
                What no mask covers stays as it is; of overlapping masks the last counts.
            size: short side at which the network works, for the content and for a style not prepared yet. "full" is a
                picture's own; "auto" as well, up to a short side of 1024: strokes are some pixels wide, and would be too
                fine to be seen in a large photo.
            tile: "auto" works in tiles above two megapixels, a number is their side; the result is the same.
        """
        for argument, value, table in (
            ("method", method, MATCHERS), ("preserve_color", preserve_color, COLORS), ("photoreal", photoreal, PHOTOREAL),
        ):  # fmt: skip
            check_choice(argument, value, tuple(table))
        options = _options(method, ties, generator)
        picture, opaque = self._open(content, "content")
        check_strength(strength, len(picture))
        where = [self._region(picture, opaque, mask, s) for mask, s in self._wanted(style, regions, size, tile)]
        if COLORS[preserve_color].before is not None:
            where = [Region(mask, self._recolored(look, picture, mask, preserve_color, tile)) for mask, look in where]
        small = resize(picture, working_size(picture, size)).contiguous(memory_format=torch.channels_last)
        made = self._run(small, where, method, strength, options, tile)
        output = PHOTOREAL[photoreal](picture, made.clamp(0, 1))
        if (after := COLORS[preserve_color].after) is not None:
            output = after(output, picture)
        output = only_inside(output, picture, [mask for mask, _ in where])
        single = not (isinstance(content, Tensor) and content.ndim == 4)
        return (output[0] if single else output).to(content.device if isinstance(content, Tensor) else "cpu").contiguous()

    # --- steps ---------------------------------------------------------------------------------------------------

    def _run(
        self,
        content: Tensor,
        where: list[Region],
        method: str,
        strength: float | Tensor,
        options: dict[str, object],
        tile: str | int,
    ) -> Tensor:
        size = (content.shape[-2], content.shape[-1])

        def match(depth: int, x: Tensor) -> Tensor:
            masks = [r.mask for r in where if r.mask is not None]
            selected = iter(cells(masks, size, self.network.strides[depth]) if masks else [])
            parts = [({} if r.mask is None else {"content_mask": next(selected)}, r.look) for r in where]

            def match_some(some: Tensor, channels: slice) -> Tensor:
                for mask, look in parts:
                    some = look.match(some, depth, channels, method, **mask, **options)
                return some

            return in_shares(x, match_some)

        return restyled(self.network, content.to(self.dtype), match, tile, strength).float()

    def _features(self, picture: Tensor, mask: Tensor | None, tile: str | int) -> tuple[PreparedStyle, ...]:
        size = (picture.shape[-2], picture.shape[-1])
        side = tile_side(tile, size)
        x = picture.to(self.dtype).contiguous(memory_format=torch.channels_last)
        found = []
        for depth, step in enumerate(self.network.strides):
            x = run_stage(self.network, depth, x, size, side)
            found.append(prepare(x, style_mask=None if mask is None else style_cells(mask, size, step)))
        return tuple(found)

    def _recolored(self, look: Look, content: Tensor, mask: Tensor | None, preserve_color: str, tile: str | int) -> Look:
        recolor = COLORS[preserve_color].before
        assert recolor is not None
        pictures = tuple(
            recolor(picture, content, style_mask=_at_size(m, picture), content_mask=mask)
            for picture, m in zip(look.pictures, look.masks, strict=True)
        )
        features = tuple(self._features(p, m, tile) for p, m in zip(pictures, look.masks, strict=True))
        return replace(look, pictures=pictures, features=features, _averages={})

    # --- what was given ------------------------------------------------------------------------------------------

    def _wanted(
        self,
        style: Styles | Look | None,
        regions: Sequence[tuple[Tensor, Styles | Look]] | None,
        size: Size,
        tile: str | int,
    ) -> list[tuple[Tensor | None, Look]]:
        def look(given: Styles | Look) -> Look:
            return given if isinstance(given, Look) else self.prepare(given, size=size, tile=tile)

        if regions is None:
            if style is None:
                raise ValueError("there is no style; give one, or regions with a style each")
            return [(None, look(style))]
        found: list[tuple[Tensor | None, Look]] = []
        for mask, part in regions:
            if isinstance(part, Tensor) and part.dtype == torch.bool:
                if style is None or isinstance(style, Look):
                    raise ValueError("a region with a style mask needs the style itself: a picture, not a Look or nothing")
                found.append((mask, self.prepare(style, size=size, masks=part, tile=tile)))
            else:
                found.append((mask, look(part)))
        if not found:
            raise ValueError("regions is empty; give at least one pair of a content mask and a style")
        return found

    def _region(self, content: Tensor, opaque: Tensor | None, mask: Tensor | None, look: Look) -> Region:
        batch = look.features[0][0].values.shape[0]
        if batch not in (1, len(content)):
            raise ValueError(f"there are {batch} styles in one batch for {len(content)} contents; give one, or one for each")
        return Region(both(self._mask(mask, content, "content"), opaque), look)

    def _mask(self, mask: Tensor | None, picture: Tensor, role: str) -> Tensor | None:
        if mask is None:
            return None
        check_mask(mask, picture, role)
        return mask.to(self.device)

    def _open(self, given: AnyPicture, role: str) -> tuple[Tensor, Tensor | None]:
        """A batch of pictures on our device, and what of it is not transparent if something is."""
        picture = opened(given)
        if isinstance(picture, Picture):
            batch, _ = self._open(picture.rgb, role)
            hidden = picture.alpha is not None and not bool((picture.alpha > 0).all())
            return batch, (picture.alpha[0] > 0).to(self.device) if hidden else None  # type: ignore[index]
        check_picture(picture, role)
        return picture.reshape(-1, *picture.shape[-3:]).to(self.device, torch.float32).clamp(0, 1), None


def check_picture(given: Tensor, role: str) -> None:
    """Whether these are RGB pictures of floats in [0, 1], but for what resizing overshoots."""
    shape = tuple(given.shape)
    if given.ndim not in (3, 4) or shape[-3] != 3 or 0 in shape:
        raise ValueError(f"{role} has shape {shape}; expected RGB (3, h, w) or (b, 3, h, w)")
    if not given.is_floating_point():
        raise TypeError(f"{role} has dtype {given.dtype}; convert it to floats in [0, 1], for example {role} / 255")
    low, high = given.min().item(), given.max().item()
    if not -0.1 <= low <= high <= 1.1:  # also for NaN
        raise ValueError(f"{role} has values from {low:.3g} to {high:.3g}; expected [0, 1]: divide bytes by 255")


def check_strength(strength: float | Tensor, batch: int) -> None:
    """Whether this is a number from 0 to 1, or one for each picture."""
    given = strength if isinstance(strength, Tensor) else torch.tensor(strength, dtype=torch.float64, device="cpu")
    if given.ndim > 1 or given.numel() not in (1, batch):
        raise ValueError(f"strength has shape {tuple(given.shape)}; expected a number, or one for each of {batch} pictures")
    if not bool(((given >= 0) & (given <= 1)).all()):  # also for NaN
        raise ValueError(f"strength {given.tolist()} is outside 0 (the content) to 1 (the style)")


def _options(method: str, ties: str | None, generator: torch.Generator | None) -> dict[str, object]:
    if ties is None:
        return {}
    if method != "efdm":
        raise ValueError(f"ties={ties!r} goes with method='efdm'; {method} has no order of equal values")
    return {"ties": ties, **({"generator": generator} if ties == "random" else {})}


def _at_size(mask: Tensor | None, picture: Tensor) -> Tensor | None:
    """A mask at the size of a picture that was resized."""
    size = (picture.shape[-2], picture.shape[-1])
    return None if mask is None else style_cells(mask, size, 1)
