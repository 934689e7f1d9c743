"""Stylize the frames of a video with less flicker.

Frames that are matched independently flicker for three reasons. A match maps a value by its rank in the frame, so an object
that enters or leaves changes the mapping of all other values; the network amplifies camera noise; and a moving scene shifts
relative to the feature grid. `OutputSmoother` blends unchanged areas with the previous output and moves the grid with the
scene. A single frame then no longer matches the style exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from efdm.data import resize
from efdm.errors import SettingError
from efdm.style.color import luminance
from efdm.style.look import AnyMask, Look
from efdm.style.motion import box_blur, estimate_motion, match_exposure, warp
from efdm.style.options import StylizeOptions, Temporal, check_strength
from efdm.style.pictures import check_picture, working_size
from efdm.style.stylizer import Region, Stylizer, finish, resolve_strength

MEMORY = 0.8  # weight of the previous output where the content is unchanged
UNCHANGED = 6 / 255  # local change at which the weight of the past drops to 1 / e; larger than noise and misalignment
BINS = 32  # bins of the luminance histogram
FAINT = 1e-4  # variance of details below which they are not amplified
MAX_GAIN = 2.0
CUT = 0.35  # a scene cut: fraction of pixels that change their bin from one frame to the next


def stylize_frames(
    stylizer: Stylizer,
    frames: Iterable[Tensor],
    look: Look | None = None,
    *,
    regions: Sequence[tuple[AnyMask, Look]] | None = None,
    options: StylizeOptions | None = None,
    **changes: Any,
) -> Iterator[Tensor]:
    """Yield a stylized frame of the same size, float on the CPU, for each frame ``(3, h, w)``, float in [0, 1] or uint8.

    ``options`` and ``changes`` are those of `Stylizer.stylize`; ``preserve_color="content"`` encodes the styles again for
    every frame. Smoothing restarts at scene cuts. The masks of ``regions`` apply to all frames.
    """
    options = replace(options or StylizeOptions(), **changes)
    check_strength(options.strength, 1)
    if options.ties is not None:
        raise SettingError("ties applies to pictures, not to a video; omit it", "ties")
    return _stylize(stylizer, frames, look, regions, options)


def _stylize(
    stylizer: Stylizer,
    frames: Iterable[Tensor],
    look: Look | None,
    regions: Sequence[tuple[AnyMask, Look]] | None,
    options: StylizeOptions,
) -> Iterator[Tensor]:
    before: Tensor | None = None
    for frame in frames:
        with torch.inference_mode():  # not around the yield, where it would affect the caller
            full = _prepare_frame(frame).to(stylizer.device)[None]
            now = resize(full, working_size(full, options.size))[0]
            if before is None or now.shape != before.shape:
                stylizer.check_memory("video", *now.shape[-2:])
                prepared = stylizer.find_regions(full, None, look, regions, options.style_size or options.size)
                resolved = resolve_strength(options, prepared)
            if before is None or now.shape != before.shape or is_cut(before, now):
                smoother = OutputSmoother(options.temporal, stylizer.network.max_stride)
            recolored = stylizer.recolor_regions(prepared, full, options.preserve_color)
            margin = smoother.align(now)
            padded = F.pad(now[None], margin, mode="replicate")
            moved = [Region(_pad_mask(mask, now, margin), part) for mask, part in recolored]
            output = F.pad(stylizer.run(padded, padded.shape[-2:], moved, resolved), [-side for side in margin])
            output = smoother.blend(now, output[0])
            output = finish(output[None], full, recolored, resolved)[0]
        before = now
        yield output.cpu()


def _pad_mask(mask: Tensor | None, content: Tensor, margin: Sequence[int]) -> Tensor | None:
    """Return a mask in the size of a content with a margin."""
    if mask is None:
        return None
    return F.pad(resize(mask[None, None], content.shape[-2:]), margin, mode="replicate")[0, 0]


def _prepare_frame(frame: Tensor) -> Tensor:
    if frame.ndim != 3 or frame.shape[0] != 3:
        raise ValueError(f"frames must have shape (3, h, w), got {tuple(frame.shape)}")
    values = frame / 255 if frame.dtype == torch.uint8 else frame
    check_picture(values, "frame")()
    return values.float().clamp(0, 1)


def is_cut(before: Tensor, now: Tensor) -> bool:
    """Return True if two frames show different scenes, by their luminance histograms."""
    counts = [torch.histc(luminance(x).float(), BINS, 0, 1) / x[0].numel() for x in (before, now)]
    return bool((counts[0] - counts[1]).abs().sum() / 2 > CUT)


class OutputSmoother:
    """Blend each output with the previous one where the content is unchanged: along the motion if "smooth", never if "none".

    A network is equivariant only to shifts by its ``stride``. Other shifts cause most of the flicker of a panning camera, so
    `align` returns margins that move the frame, with the scene, over the grid of the network.
    """

    def __init__(self, temporal: Temporal, stride: int) -> None:
        self.temporal, self.stride = temporal, stride
        self._past: tuple[Tensor, Tensor] | None = None  # previous content and output
        self._aligned: tuple[Tensor, Tensor] | None = None  # the same output, aligned with this frame, and its weights
        self._shift = torch.zeros(2)

    def align(self, content: Tensor) -> list[int]:
        """Estimate the motion since the previous frame and return margins (left, right, top, bottom) for the network."""
        if self.temporal != "none" and self._past is not None:
            # exposure does not change the ranks, so previous frames still apply
            before, output = match_exposure(self._past[0], content), self._past[1]
            known = torch.ones_like(content[0])
            if self.temporal == "smooth":
                flow = estimate_motion(content, before)
                self._shift = self._shift + flow.flatten(1).median(-1).values.cpu()
                moved, known = warp(torch.cat([before, output]), flow)
                before, output = moved[:3], moved[3:]
            self._aligned = output, MEMORY * similarity(content, before) * known
        top, left = (int(side) % self.stride for side in self._shift.round())
        return [left, -left % self.stride, top, -top % self.stride]

    def blend(self, content: Tensor, output: Tensor) -> Tensor:
        """Return the blended output of the content that was passed to `align`."""
        blended = output if self._aligned is None else torch.lerp(output, *self._aligned).clamp(0, 1)
        # stored without the sharpening, because repeated sharpening turns texture into ripples
        self._past = (content, blended)
        return blended if blended is output else sharpen_like(blended, output)


def sharpen_like(blurred: Tensor, sharp: Tensor) -> Tensor:
    """Amplify the details of an average ``(3, h, w)`` to the local contrast that they have in a single frame."""
    details, sharp_details = (x - box_blur(box_blur(x, 3), 3) for x in (blurred, luminance(sharp)))
    energy, sharp_energy = (box_blur(x.square(), 9) + FAINT for x in (luminance(details), sharp_details))
    return (blurred + ((sharp_energy / energy).sqrt().clamp(1, MAX_GAIN) - 1) * details).clamp(0, 1)


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Return ``(1, h, w)`` in [0, 1]: 1 where two frames agree up to noise, near 0 where they differ."""
    return torch.exp(-(box_blur(a - b, 5) / UNCHANGED).square().sum(0, keepdim=True))
