"""`Stylizer`: stylize pictures with a trained network."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from efdm.data import Picture, resize
from efdm.data.memory import SMALLER, check_memory
from efdm.models import StyleNetwork
from efdm.models.weights import pretrained
from efdm.ops import MATCHERS, PreparedStyle, prepare
from efdm.ops.choices import check_choice
from efdm.style.color import COLORS
from efdm.style.look import (
    AnyMask,
    Look,
    checked_mask,
    content_cells,
    intersect,
    normalize_weights,
    paste_inside,
    style_cells,
    without_overlap,
)
from efdm.style.options import StylizeOptions, check_strength
from efdm.style.photoreal import PHOTOREAL
from efdm.style.pictures import AnyPicture, Size, check_picture, convert_back, open_picture, working_size
from efdm.style.pipeline import LARGE, fade, map_channels, match_options, run_network, run_stage
from efdm.style.replay import MAX_PIXELS, Captured, Graphs
from efdm.training import PRECISIONS
from efdm.training.device import check_device, default_device

REFINEMENT = 0.5  # weight of the match in the passes after the first; a full match would add fine strokes
Styles = AnyPicture | list[AnyPicture] | tuple[AnyPicture, ...]


class Region(NamedTuple):
    """A look and the content mask ``(h, w)`` in [0, 1] to which it applies; None selects the whole content."""

    mask: Tensor | None
    look: Look


class Stylizer:
    """A style-transfer network on a device, in evaluation mode. The given network is copied.

    >>> import torch
    >>> from efdm.models import build
    >>> from efdm.style.stylizer import Stylizer
    >>> stylizer = Stylizer(build("small"))  # random weights; Stylizer.from_pretrained() loads trained weights
    >>> photo, painting = torch.rand(3, 40, 60), torch.rand(3, 64, 64)
    >>> stylizer.stylize(photo, painting, strength=0.8).shape
    torch.Size([3, 40, 60])
    >>> look = stylizer.prepare([painting, painting.flip(0)], weights=[3, 1])  # reusable for any number of contents
    >>> stylizer.stylize(photo, look, preserve_color="content").shape
    torch.Size([3, 40, 60])
    >>> len(stylizer([photo, photo.flip(0)], look))  # the same as stylizer.stylize
    2
    """

    def __init__(self, network: StyleNetwork, device: str | torch.device | None = None, *, precision: str = "fp32") -> None:
        check_choice("precision", precision, tuple(PRECISIONS))
        self.device = check_device(device or default_device())
        self.precision, self.dtype = precision, PRECISIONS[precision]
        self.network = copy.deepcopy(network).eval().to(self.device, self.dtype)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._graphs = Graphs()

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
        """Load a trained network.

        Args:
            name: a row of `efdm.models.NETWORKS`. Defaults to the network named in ``weights``, or to "small".
            weights: file written by a training run. Defaults to the published weights of the network.
            vgg: file of the VGG encoder. Defaults to the file in the weights folders.
            precision: "fp32" or "bf16". On a GPU, bf16 is several times faster, with no visible difference.
        """
        return cls(pretrained(name, weights=weights, vgg=vgg), device, precision=precision)

    def __repr__(self) -> str:
        return f"Stylizer({self.network.name}, device={self.device}, precision={self.precision})"

    def to(self, device: str | torch.device) -> Stylizer:
        """Move the network to a device. Looks that were prepared on another device must be prepared again."""
        self.device = check_device(device)
        self.network.to(self.device)
        self._graphs = Graphs()
        return self

    @torch.no_grad()
    def prepare(
        self,
        styles: Styles,
        *,
        weights: Sequence[float] | None = None,
        size: Size = "auto",
        masks: Sequence[AnyMask | None] | AnyMask | None = None,
    ) -> Look:
        """Prepare one style, or several styles that are mixed by ``weights`` (equal by default), for repeated use.

        Args:
            size: short side to which the styles are resized, or "auto" or "full" as in `stylize`.
            masks: an `AnyMask` or None for each style. Only opaque pixels with a mask of at least one half are used.
        """
        sources = list(styles) if isinstance(styles, list | tuple) else [styles]
        mask_list = [None] * len(sources) if masks is None else list(masks) if isinstance(masks, list | tuple) else [masks]
        if len(mask_list) != len(sources):
            raise ValueError(f"expected a mask or None for each of {len(sources)} styles, got {len(mask_list)} masks")
        weights = normalize_weights(weights, len(sources))
        pictures, selections, features = [], [], []
        for style, mask in zip(sources, mask_list, strict=True):
            opened = open_picture(style)
            check_picture(opened.rgb, "style")()
            rgb, opaque = self._load(opened)
            selected = intersect(checked_mask(mask, rgb, "style"), opaque)
            if selected is not None and not selected.any():
                raise ValueError("every selected pixel of the style is transparent; select visible pixels")
            shape = working_size(rgb, size)
            self.check_memory("style", *shape, len(rgb))
            selections.append(selected)
            pictures.append(resize(rgb, shape))
            features.append(self._features(pictures[-1], selected))
        return Look(tuple(pictures), tuple(selections), weights, tuple(features))

    @torch.no_grad()
    def stylize(
        self,
        content: Styles,
        style: Styles | Look | None = None,
        *,
        regions: Sequence[tuple[AnyMask, Styles | Look]] | None = None,
        options: StylizeOptions | None = None,
        **changes: Any,
    ) -> Any:
        """Return the stylized content, in the size and type of ``content``.

        The result is a PIL image for a PIL image, a tensor for a tensor and an array for an array, of the same dtype, a
        `Picture` for a `Picture`, a path, bytes or a binary file, and a list for a list of contents. The alpha channel is
        preserved; transparent pixels are neither matched nor changed. On a GPU, calls that repeat the look, the options
        and the shape of an earlier call replay a CUDA graph, with one style at full strength and without masks.

        Args:
            regions: pairs of a content mask (`AnyMask`) and a style, instead of ``style``. Pixels outside all masks stay
                unchanged, and values between 0 and 1 blend; where masks overlap, the last one applies.
            options: defaults to ``StylizeOptions()``.
            changes: fields of `StylizeOptions` that override those of ``options``, such as ``strength=0.8``.
        """
        options = replace(options or StylizeOptions(), **changes)
        size = options.style_size or options.size
        if isinstance(content, list | tuple):
            if regions is None and style is not None and not isinstance(style, Look):
                style = self.prepare(style, size=size)
            return [self.stylize(one, style, regions=regions, options=options) for one in content]
        opened = open_picture(content)
        check = check_picture(opened.rgb, "content")
        rgb, opaque = self._load(opened)
        check_strength(options.strength, len(rgb))
        shape = working_size(rgb, options.size)
        self.check_memory("content", *shape, len(rgb))
        prepared = self.find_regions(rgb, opaque, style, regions, size)
        options = resolve_strength(options, prepared)
        prepared = self.recolor_regions(prepared, rgb, options.preserve_color)
        graph = self._find_graph(rgb, shape, style, prepared, options)
        # launched before the check, which waits until the range of the content is on the host
        replayed = None if graph is None else graph(resize(rgb, shape))
        check()
        output = self.run(rgb, shape, prepared, options) if replayed is None else replayed
        output = finish(output, rgb, prepared, options)
        return convert_back(output if opened.rgb.ndim == 4 else output[0], content, opened)

    __call__ = stylize

    def _find_graph(
        self, rgb: Tensor, shape: tuple[int, int], style: object, regions: list[Region], options: StylizeOptions
    ) -> Captured | None:
        """Return the CUDA graph of a call that repeats an earlier one, or None for other calls."""
        look = regions[0].look
        capturable = (
            rgb.is_cuda
            and len(rgb) * shape[0] * shape[1] <= MAX_PIXELS
            and look is style  # prepared by the caller
            and len(regions) == 1
            and regions[0].mask is None
            and look.masks == (None,)
            and options.stroke == 1
            and options.ties is None
            and not isinstance(options.strength, Tensor)
            and options.strength == 1
            and MATCHERS[options.method].channels == "separate"  # joint matchers factorize matrices on the host
            and not torch.is_autocast_enabled("cuda")
        )
        if not capturable:
            return None

        def capture() -> Captured:
            own = [Region(None, look.copy())]  # a copy, whose caches only this graph uses
            return Captured(lambda x: self.run(x, shape, own, options), self._resized(rgb, shape))

        stream = torch.cuda.current_stream(rgb.device)
        return self._graphs.get((weakref.ref(look), len(rgb), shape, stream, options.method, options.tolerance), capture)

    def run(self, rgb: Tensor, shape: Sequence[int], regions: list[Region], options: StylizeOptions) -> Tensor:
        """Return the output of the network for the content resized to ``shape``, blended between the regions."""
        if len(regions) == 1:
            return self._run_region(rgb, shape, regions[0], options)
        everywhere = torch.ones_like(rgb[0, 0])
        visible = without_overlap([everywhere if mask is None else mask for mask, _ in regions])
        shares = resize(torch.stack(visible)[:, None], shape)
        weights = shares / shares.sum(0).clamp_min(1e-6)
        output = (1 - weights.sum(0)) * resize(rgb, shape)
        for mask, (_, look), weight in zip(visible, regions, weights, strict=True):
            if weight.any():  # not hidden by later regions
                output += weight * self._run_region(rgb, shape, Region(mask, look), options)
        return output

    def _run_region(self, rgb: Tensor, shape: Sequence[int], region: Region, options: StylizeOptions) -> Tensor:
        """Return the output for one region, after passes at smaller sizes."""
        generator = torch.Generator(self.device).manual_seed(index(options.seed)) if options.ties == "random" else None
        arguments = match_options(self.network, options.method, options.ties, options.tolerance, generator)
        output: Tensor | None = None
        stroke = options.stroke
        while True:
            size = (max(1, round(shape[0] / stroke)), max(1, round(shape[1] / stroke)))
            match: Any = partial(self._match, size=size, region=region, method=options.method, options=arguments)
            start = None
            if output is not None:
                match, start = partial(_refine, match=match), self._resized(output, size)
            strength: Any = 1.0 if stroke > 1 else options.strength
            output = run_network(self.network, self._resized(rgb, size), match, strength, start).clamp(0, 1).float()
            if stroke == 1:
                return output
            stroke = max(1.0, stroke / 2)

    def _resized(self, rgb: Tensor, size: Sequence[int]) -> Tensor:
        return resize(rgb, size).to(self.dtype, memory_format=torch.channels_last)

    def _match(
        self, depth: int, x: Tensor, size: Sequence[int], region: Region, method: str, options: dict[str, object]
    ) -> Tensor:
        """Match the features after stage ``depth`` of a content of ``size`` to the look of a region."""
        mask, look = region
        if mask is not None:
            options = {**options, "content_mask": content_cells(mask, size, self.network.strides[depth])}
        if MATCHERS[method].channels == "joint":
            return look.match(x, depth, slice(None), method, **options)
        return map_channels(x, lambda part, channels: look.match(part, depth, channels, method, **options))

    def _features(self, picture: Tensor, mask: Tensor | None) -> tuple[PreparedStyle, ...]:
        size = picture.shape[-2:]
        x = picture.to(self.dtype).contiguous(memory_format=torch.channels_last)
        features = []
        for depth, stride in enumerate(self.network.strides):
            x = run_stage(self.network, depth, x, size)
            features.append(prepare(x, style_mask=None if mask is None else style_cells(mask, size, stride)))
        return tuple(features)

    def recolor_regions(self, regions: list[Region], content: Tensor, preserve_color: str) -> list[Region]:
        """Return the regions with their styles recoloured for a content, if the row of `COLORS` does so."""
        before = COLORS[preserve_color].before
        if before is None:
            return regions
        return [Region(mask, self._recolored(look, before, content, mask)) for mask, look in regions]

    def _recolored(self, look: Look, recolor: Callable[..., Tensor], content: Tensor, mask: Tensor | None) -> Look:
        pictures, features = [], []
        for picture, selected in zip(look.pictures, look.masks, strict=True):
            # the style may have been resized
            pixels = None if selected is None else style_cells(selected, picture.shape[-2:], 1)
            inside = None if mask is None else mask >= 0.5
            pictures.append(recolor(picture, content, style_mask=pixels, content_mask=inside))
            features.append(self._features(pictures[-1], selected))
        return replace(look, pictures=tuple(pictures), features=tuple(features))

    def find_regions(
        self,
        content: Tensor,
        opaque: Tensor | None,
        style: Styles | Look | None,
        regions: Sequence[tuple[AnyMask | None, Styles | Look]] | None,
        size: Size,
    ) -> list[Region]:
        """Return a look for each region of the contents ``(b, 3, h, w)``, or one look for all of their opaque pixels."""
        if (regions is None) == (style is None):
            raise ValueError("pass either a style, or regions with a style each")
        result = []
        for mask, part in [(None, style)] if regions is None else regions:
            look = part if isinstance(part, Look) else self.prepare(part, size=size)
            batch = look.features[0][0].values.shape[0]
            if batch not in (1, len(content)):
                raise ValueError(f"expected one style, or one for each of {len(content)} contents, got a batch of {batch}")
            result.append(Region(intersect(checked_mask(mask, content, "content"), opaque), look))
        if not result:
            raise ValueError("regions is empty; pass at least one pair of a content mask and a style")
        return result

    def check_memory(self, role: str, height: int, width: int, count: int = 1) -> None:
        """Raise SettingError if pictures of this size, at which the network runs, do not fit into the free memory."""
        pixels = count * height * width
        if pixels > LARGE:
            # measured with `small`; pictures are float32, and features have the precision of the network
            needed = pixels * (60 + 25 * self.dtype.itemsize)
            check_memory(needed, f"{height} x {width} pixels of the {role}", self.device, remedy=SMALLER)

    def _load(self, picture: Picture) -> tuple[Tensor, Tensor | None]:
        """Return the RGB batch on the device, and the mask of visible pixels if some are transparent."""
        batch = picture.rgb.reshape(-1, *picture.rgb.shape[-3:]).to(self.device, torch.float32).clamp(0, 1)
        if picture.alpha is None or bool((picture.alpha > 0).all()):
            return batch, None
        return batch, (picture.alpha[0] > 0).to(self.device, torch.float32)


def resolve_strength(options: StylizeOptions, regions: list[Region]) -> StylizeOptions:
    """Return the options with the automatic strength, the mean over the looks of all regions, in place of "auto"."""
    if not isinstance(options.strength, str):
        return options
    return replace(options, strength=sum((look.strength for _, look in regions), 0.0) / len(regions))


def finish(output: Tensor, content: Tensor, regions: list[Region], options: StylizeOptions) -> Tensor:
    """Return the output of the network in the size of the content, filtered, recoloured and pasted into the regions."""
    output = COLORS[options.preserve_color].after(PHOTOREAL[options.photoreal](content, output), content)
    output = fade(content, output, options.strength)  # type: ignore[arg-type]
    return paste_inside(output, content, [mask for mask, _ in regions])


def _refine(depth: int, x: Tensor, match: Callable[[int, Tensor], Tensor]) -> Tensor:
    return torch.lerp(x, match(depth, x), REFINEMENT)
