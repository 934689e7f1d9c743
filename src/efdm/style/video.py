"""Stylize the frames of a video with less flicker.

Frames that are matched independently flicker for two reasons. A match maps a value by its rank in the frame, so an object
that enters or leaves changes the mapping of all other values; and the network amplifies camera noise. `CurveSmoother`
addresses the first: it averages the quantiles of the content over time and maps values through the smoothed curve.
`OutputSmoother` addresses the second: it blends unchanged areas with the previous output. With either smoother, a single
frame no longer matches the style exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm import kernels
from efdm.data import resize
from efdm.data.images import short_side_size
from efdm.errors import SettingError
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice
from efdm.ops.ties import tie_bounds
from efdm.style.color import luminance
from efdm.style.look import Look
from efdm.style.motion import estimate_motion, match_exposure, warp
from efdm.style.pictures import check_size
from efdm.style.pipeline import FADE, fade, match_options, run_network
from efdm.style.stylizer import Stylizer, check_picture, check_strength, check_stroke

KNOTS = 1024  # points of a smoothed curve, which is piecewise linear
UNCHANGED = 6 / 255  # local change at which the weight of the past drops to 1 / e; larger than noise and misalignment
BINS = 32  # bins of the luminance histogram
CUT = 0.35  # a scene cut: fraction of pixels that change their bin from one frame to the next


@dataclass(frozen=True)
class Temporal:
    """A row of `TEMPORAL`. ``curves`` and ``outputs`` are weights of the past in [0, 1)."""

    title: str
    curves: float = 0.0
    outputs: float = 0.0
    motion: str = "none"  # "estimated": the past is warped along the motion


TEMPORAL: Mapping[str, Temporal] = MappingProxyType({
    "none": Temporal("independent frames, matched exactly"),
    "still": Temporal("static areas averaged over time; fast", outputs=0.8),
    "smooth": Temporal("outputs averaged along the estimated motion", outputs=0.8, motion="estimated"),
    "curves": Temporal("smoothed mapping, for large objects that enter or leave; not for varying exposure", curves=0.9),
    "both": Temporal("smooth and curves", curves=0.9, outputs=0.8, motion="estimated"),
})  # fmt: skip


def stylize_frames(
    stylizer: Stylizer,
    frames: Iterable[Tensor],
    look: Look,
    *,
    strength: float | Literal["auto"] = "auto",
    stroke: float = 1.0,
    method: str = "efdm",
    temporal: str = "smooth",
    size: int | None = None,
) -> Iterator[Tensor]:
    """Yield a stylized frame, float on the CPU, for each frame ``(3, h, w)``, float in [0, 1] or uint8.

    ``temporal`` is a row of `TEMPORAL`; smoothing restarts at scene cuts. ``size`` is the largest short side: larger frames
    are resized.
    """
    check_choice("method", method, tuple(MATCHERS))
    check_choice("temporal", temporal, tuple(TEMPORAL))
    check_strength(strength, 1)
    check_stroke(stroke)
    check_size(size)
    row = TEMPORAL[temporal]
    if row.curves and stroke > 1:
        raise SettingError(f"stroke > 1 does not work with temporal={temporal!r}; try 'smooth'", ("stroke", "temporal"))
    return _stylize(stylizer, frames, look, look.strength if strength == "auto" else strength, stroke, method, row, size)


def _stylize(
    stylizer: Stylizer,
    frames: Iterable[Tensor],
    look: Look,
    strength: Any,
    stroke: float,
    method: str,
    row: Temporal,
    size: int | None,
) -> Iterator[Tensor]:
    before: Tensor | None = None
    for frame in frames:
        with torch.inference_mode():  # not around the yield, where it would affect the caller
            now = _prepare_frame(frame, size).to(stylizer.device)
            if before is None or now.shape != before.shape or is_cut(before, now):
                curves = CurveSmoother(look, row.curves, method, **match_options(stylizer.network, method))
                outputs = OutputSmoother(row.outputs * min(1.0, strength / FADE), row.motion)  # strength 0 keeps the frame
            if row.curves:
                made = curves.stylize(stylizer, now, strength)
            else:
                made = stylizer.stylize(now, look, strength=strength, stroke=stroke, method=method)
            made = outputs.blend(now, made)
        before = now
        yield made.cpu()


def _prepare_frame(frame: Tensor, size: int | None) -> Tensor:
    if frame.ndim != 3 or frame.shape[0] != 3:
        raise ValueError(f"frames must have shape (3, h, w), got {tuple(frame.shape)}")
    if frame.dtype != torch.uint8:
        check_picture(frame, "frame")  # rows with curves do not call `Stylizer.stylize`, which also validates
        frame = frame.float().clamp(0, 1)
    if size is not None and min(frame.shape[1:]) > size:
        frame = resize(frame, short_side_size(frame.shape[1], frame.shape[2], size))
    return frame.float() / 255 if frame.dtype == torch.uint8 else frame


def is_cut(before: Tensor, now: Tensor) -> bool:
    """Return True if two frames show different scenes, by their luminance histograms."""
    counts = [torch.histc(luminance(x).float(), BINS, 0, 1) / x[0].numel() for x in (before, now)]
    return bool((counts[0] - counts[1]).abs().sum() / 2 > CUT)


class OutputSmoother:
    """Blend each output with the previous one where the content has not changed."""

    def __init__(self, memory: float, motion: str) -> None:
        self.memory, self.motion = memory, motion
        self._past: tuple[Tensor, Tensor] | None = None

    def blend(self, content: Tensor, made: Tensor) -> Tensor:
        if self.memory and self._past is not None:
            old_content, old = self._past
            # exposure does not change the ranks, so previous frames still apply
            old_content, known = match_exposure(old_content, content), torch.ones_like(content[0])
            if self.motion == "estimated":
                moved, known = warp(torch.cat([old_content, old]), estimate_motion(content, old_content))
                old_content, old = moved[:3], moved[3:]
            made = torch.lerp(made, old, self.memory * similarity(content, old_content) * known).clamp(0, 1)
        self._past = (content, made)
        return made


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Return ``(1, h, w)`` in [0, 1]: 1 where two frames agree up to noise, near 0 where they differ."""
    change = F.avg_pool2d(F.pad((a - b)[None], (2,) * 4, mode="replicate"), 5, stride=1)[0]
    return torch.exp(-(change / UNCHANGED).square().sum(0, keepdim=True))


class CurveSmoother:
    """Match features through curves from content to style values that are averaged over time."""

    def __init__(self, look: Look, memory: float, method: str, **options: object) -> None:
        self.look, self.memory, self.method, self.options = look, memory, method, options
        self._quantiles: dict[int, Tensor] = {}

    def stylize(self, stylizer: Stylizer, content: Tensor, strength: float) -> Tensor:
        batch = content[None].to(stylizer.dtype).contiguous(memory_format=torch.channels_last)
        made = run_network(stylizer.network, batch, self.match, "auto", strength)[0].float().clamp(0, 1)
        return fade(content, made, strength)

    def match(self, depth: int, x: Tensor) -> Tensor:
        """Map the features ``(1, c, h, w)`` of a frame through the curve from smoothed content quantiles to style values."""
        ordered, rank = kernels.sort_rank(x.flatten(2))
        # float32: in half precision, small steps round to zero and the average would never converge
        ordered = ordered.to(torch.promote_types(x.dtype, torch.float32))
        past = self._quantiles.get(depth)
        smooth = ordered if past is None else torch.lerp(ordered, past, self.memory)
        self._quantiles[depth] = smooth
        # matching the smoothed values themselves gives the curve of any matcher
        heights = self.look.match(smooth.to(x.dtype), depth, slice(None), self.method, **self.options).to(smooth.dtype)
        mapped = kernels.take(interpolate_curve(ordered, *knots(smooth, heights)), rank)
        return torch.empty_like(x).copy_(mapped.view(x.shape))  # keeps the memory format


def knots(smooth: Tensor, heights: Tensor) -> tuple[Tensor, Tensor]:
    """Reduce a curve given at every rank to at most `KNOTS` points; tied values get their mean height."""
    n = smooth.shape[-1]
    if n > KNOTS:
        at = torch.linspace(0, n - 1, KNOTS, device=smooth.device).round().long()
        smooth, heights = smooth[..., at], heights[..., at]
    first, end = tie_bounds(smooth)
    total = F.pad(heights.double().cumsum(-1), (1, 0))
    mean = (total.gather(-1, end) - total.gather(-1, first)) / (end - first)
    return smooth.contiguous(), torch.where(end - first == 1, heights, mean.to(heights))


def interpolate_curve(ordered: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Evaluate the piecewise linear curve at sorted values; it is constant beyond its ends."""
    last, n = xs.shape[-1] - 1, ordered.shape[-1]
    # count the knots up to each value by searching the few knots among the many values
    places = torch.searchsorted(ordered, xs)
    passed = torch.zeros(*xs.shape[:-1], n + 1, dtype=torch.int64, device=xs.device)
    passed = passed.scatter_add_(-1, places, torch.ones_like(places)).cumsum(-1)[..., :n]
    left, right = (passed - 1).clamp(0, last), passed.clamp(0, last)
    x0, x1, y0, y1 = xs.gather(-1, left), xs.gather(-1, right), ys.gather(-1, left), ys.gather(-1, right)
    share = torch.where(x1 > x0, (ordered - x0) / (x1 - x0), 0.0)
    return torch.lerp(y0, y1, share)
