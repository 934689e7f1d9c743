"""Frames of a video, stylized one after the other, with less flicker.

Frame by frame the exact match flickers for two reasons. The place of a value is its rank among all values of the frame, so
whatever enters or leaves the picture shifts the curve from content to style values for everything else. And the network
makes more of the noise that every camera adds. Against the first, `Curves` follows the content's quantiles slowly and maps
values through the smoothed curve; against the second, `Outputs` blends what did not change with the picture before. With
either, a single frame no longer matches the style exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels
from efdm.data import resize
from efdm.data.images import short_side_size
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.ops.ties import tie_bounds
from efdm.style.color import luminance
from efdm.style.look import Look
from efdm.style.motion import estimate, same_exposure, warp
from efdm.style.pipeline import run_network
from efdm.style.stylizer import Stylizer, check_picture, check_strength

KNOTS = 1024  # points of a smoothed curve; between them it is straight
UNCHANGED = 6 / 255  # a change of the surroundings that is noise or small misalignment: e times less of the past is kept
BINS = 32  # of the luminance histogram
CUT = 0.35  # share of the pixels in another bin from one frame to the next: a new scene


@dataclass(frozen=True)
class Temporal:
    """One row: how much of the past is kept, 0 for nothing and less than 1."""

    title: str
    curves: float = 0.0
    outputs: float = 0.0
    motion: str = "none"  # "estimated": the past is moved to where it is now


TEMPORAL: Mapping[str, Temporal] = MappingProxyType({
    "none": Temporal("every frame for itself, matched exactly"),
    "still": Temporal("blended with the past where nothing moves; cheap", outputs=0.8),
    "smooth": Temporal("blended with the past along the estimated motion", outputs=0.8, motion="estimated"),
    "curves": Temporal("smoothed curves: when large things enter or leave; not when the exposure wavers", curves=0.9),
    "both": Temporal("smooth and curves", curves=0.9, outputs=0.8, motion="estimated"),
})  # fmt: skip


def stylize_frames(
    stylizer: Stylizer,
    frames: Iterable[Tensor],
    look: Look,
    *,
    strength: float = 1.0,
    method: str = "efdm",
    temporal: str = "smooth",
    size: int | None = None,
) -> Iterator[Tensor]:
    """Frames ``(3, h, w)``, float in [0, 1] or uint8, in the look of a style, one for one, float on the CPU.

    ``temporal`` is a row of `TEMPORAL`. What is remembered is forgotten at a scene cut. With ``size``, frames whose short
    side is longer are made that small first, and stay so.
    """
    check_choice("method", method, tuple(MATCHERS))
    check_choice("temporal", temporal, tuple(TEMPORAL))
    check_strength(strength, 1)
    if size is not None and size < 1:
        raise ValueError(f"size={size}; expected a short side of one pixel or more")
    return _stylize(stylizer, frames, look, strength, method, TEMPORAL[temporal], size)


def _stylize(
    stylizer: Stylizer, frames: Iterable[Tensor], look: Look, strength: float, method: str, row: Temporal, size: int | None
) -> Iterator[Tensor]:
    curves, outputs = Curves(look, row.curves, method), Outputs(row.outputs, row.motion)
    before: Tensor | None = None
    for frame in frames:
        with torch.inference_mode():  # not around the yield: it would hold for whoever asks for the frames
            now = _made_ready(frame, size).to(stylizer.device)
            if before is not None and (now.shape != before.shape or is_cut(before, now)):
                curves, outputs = Curves(look, row.curves, method), Outputs(row.outputs, row.motion)
            if row.curves:
                made = curves.stylize(stylizer, now, strength)
            else:
                made = stylizer.stylize(now, look, strength=strength, method=method)
            made = outputs.blend(now, made)
        before = now
        yield made.cpu()


def _made_ready(frame: Tensor, size: int | None) -> Tensor:
    if frame.ndim != 3 or frame.shape[0] != 3:
        raise ValueError(f"a frame has shape {tuple(frame.shape)}, expected (3, h, w)")
    if frame.dtype != torch.uint8:
        check_picture(frame, "frame")  # whatever the row of `TEMPORAL`: some never meet the stylizer's own door
        frame = frame.float().clamp(0, 1)
    if size is not None and min(frame.shape[1:]) > size:
        frame = resize(frame, short_side_size(frame.shape[1], frame.shape[2], size))
    return frame.float() / 255 if frame.dtype == torch.uint8 else frame


def is_cut(before: Tensor, now: Tensor) -> bool:
    """Whether two frames show different scenes, by their luminance histograms."""
    counts = [torch.histc(luminance(x).float(), BINS, 0, 1) / x[0].numel() for x in (before, now)]
    return bool((counts[0] - counts[1]).abs().sum() / 2 > CUT)


# --- smoothed outputs ------------------------------------------------------------------------------------------------


class Outputs:
    """The last output, moved along with the content, and blended into the next where the content is the same."""

    def __init__(self, memory: float, motion: str) -> None:
        self.memory, self.motion = memory, motion
        self._past: tuple[Tensor, Tensor] | None = None

    def blend(self, content: Tensor, made: Tensor) -> Tensor:
        if self.memory and self._past is not None:
            old_content, old = self._past
            old_content = same_exposure(old_content, content)  # a match does not see the exposure: the past still holds
            known = None
            if self.motion == "estimated":
                moved, known = warp(torch.cat([old_content, old]), estimate(content, old_content))
                old_content, old = moved[:3], moved[3:]
            kept = self.memory * sameness(content, old_content)
            if known is not None:
                kept = kept * known
            made = torch.lerp(made, old, kept).clamp(0, 1)
        self._past = (content, made)
        return made


def sameness(a: Tensor, b: Tensor) -> Tensor:
    """``(1, h, w)``, 1 where two pictures agree but for noise, towards 0 where they differ."""
    change = F.avg_pool2d(F.pad((a - b)[None], (2,) * 4, mode="replicate"), 5, stride=1)[0]
    return torch.exp(-(change / UNCHANGED).square().sum(0, keepdim=True))


# --- smoothed curves -------------------------------------------------------------------------------------------------


class Curves:
    """The smoothed quantiles of the content at every depth, and matching by them."""

    def __init__(self, look: Look, memory: float, method: str) -> None:
        self.look, self.memory, self.method = look, memory, method
        self._sorted: dict[int, Tensor] = {}

    def stylize(self, stylizer: Stylizer, content: Tensor, strength: float) -> Tensor:
        batch = content[None].to(stylizer.dtype).contiguous(memory_format=torch.channels_last)
        return run_network(stylizer.network, batch, self.match, "auto", strength)[0].float().clamp(0, 1)

    def match(self, depth: int, x: Tensor) -> Tensor:
        """Map the frame's features ``(1, c, h, w)`` through the curve from smoothed content to style."""
        ordered, rank = kernels.sort_rank(x.flatten(2))
        # half precision would round small steps away, and the memory would stay behind for ever
        ordered = ordered.to(torch.promote_types(x.dtype, torch.float32))
        past = self._sorted.get(depth)
        smooth = ordered if past is None else torch.lerp(ordered, past, self.memory)
        self._sorted[depth] = smooth
        # a matcher applied to the smoothed values themselves gives the curve, whatever the matcher
        heights = self.look.match(smooth.to(x.dtype), depth, slice(None), self.method).to(smooth.dtype)
        mapped = kernels.take(along_curve(ordered, *knots(smooth, heights)), rank)
        return torch.empty_like(x).copy_(mapped.view(x.shape))  # in the memory format of the network


def knots(smooth: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
    """Some points of a curve that is given at every rank; where values are tied, the mean of their heights."""
    n = smooth.shape[-1]
    if n > KNOTS:
        at = torch.linspace(0, n - 1, KNOTS, device=smooth.device).round().long()
        smooth, heights = smooth[..., at], heights[..., at]
    first, end = tie_bounds(smooth)
    total = F.pad(heights.double().cumsum(-1), (1, 0))
    mean = (total.gather(-1, end) - total.gather(-1, first)) / (end - first)
    return smooth.contiguous(), torch.where(end - first == 1, heights, mean.to(heights))


def along_curve(ordered: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Heights of the piecewise straight curve at sorted values; beyond its ends it is level."""
    last, n = xs.shape[-1] - 1, ordered.shape[-1]
    # how many knots are not above a value: the knots are looked up among the values, of which there are many more
    places = torch.searchsorted(ordered, xs)
    passed = torch.zeros(*xs.shape[:-1], n + 1, dtype=torch.int64, device=xs.device)
    passed = passed.scatter_add_(-1, places, torch.ones_like(places)).cumsum(-1)[..., :n]
    left, right = (passed - 1).clamp(0, last), passed.clamp(0, last)
    x0, x1, y0, y1 = xs.gather(-1, left), xs.gather(-1, right), ys.gather(-1, left), ys.gather(-1, right)
    share = torch.where(x1 > x0, (ordered - x0) / (x1 - x0), 0.0)
    return torch.lerp(y0, y1, share)
