"""Names, defaults and validation of the options of a stylization and of a colour match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from efdm.errors import SettingError
from efdm.ops import MATCHERS
from efdm.ops.choices import check_choice, check_tolerance
from efdm.style.color import COLORS, SPACES
from efdm.style.levels import TIES
from efdm.style.photoreal import PHOTOREAL
from efdm.style.pictures import Size, check_size

MAX_STROKE = 8
Strength = float | Tensor | Literal["auto"]
Temporal = Literal["none", "still", "smooth"]
Audio = Literal["keep", "drop"]
Method = Literal["channels", "joint"]


@dataclass(frozen=True)
class StylizeOptions:
    """Options of `Stylizer.stylize`, `stylize_frames`, `plan_files`, the commands and the web app.

    Args:
        strength: from 0 (the content) to 1; a tensor gives one value for each image of a batch. "auto" is 1, or less
            for a style that is nearly empty, such as a faint drawing: see `Look.strength`.
        stroke: factor from 1 to 8 by which strokes become larger. The content is stylized at a fraction of its size,
            and the enlarged result again, half as much, at twice that size, up to full size.
        method: a row of `MATCHERS`.
        preserve_color: a row of `COLORS`: "none", "content" or "luminance".
        photoreal: a row of `PHOTOREAL`: "none", or a filter that takes all edges from the content.
        ties: order of equal values, for method "efdm". Not for videos.
        tolerance: how far content values may differ to share one style value, in standard deviations, for method
            "efdm". Defaults to that of the network, or to 0, exact matching, with ``ties``.
        size: short side to which the content, and a style that is not prepared, are resized for the network. "full"
            keeps their size; "auto" keeps it up to a short side of 1024, because strokes a few pixels wide would be too
            fine to see in a larger picture.
        seed: seed of ``ties="random"``.
        style_size: size of a style that is not prepared. Defaults to ``size``.
        temporal: flicker reduction in videos. "none": independent frames, matched exactly; "still": static areas are
            averaged over time, which is fast; "smooth": averaged along the motion, as sharp as single frames.
        audio: sound of a video file.
    """

    strength: Strength = "auto"
    stroke: float = 1.0
    method: str = "efdm"
    preserve_color: str = "none"
    photoreal: str = "none"
    ties: str | None = None
    tolerance: float | None = None
    size: Size = "auto"
    seed: int = 0
    style_size: Size = None
    temporal: Temporal = "smooth"
    audio: Audio = "keep"

    def __post_init__(self) -> None:
        tables = {"method": MATCHERS, "preserve_color": COLORS, "photoreal": PHOTOREAL}
        for name, table in {**tables, "temporal": get_args(Temporal), "audio": get_args(Audio)}.items():
            check_choice(name, getattr(self, name), tuple(table))
        if self.ties is not None:
            check_choice("ties", self.ties)
        if self.tolerance is not None:
            check_tolerance(self.tolerance)
        for name, value in (("ties", self.ties), ("tolerance", self.tolerance)):
            if value is not None and self.method != "efdm":
                raise SettingError(f"{name}={value!r} needs method='efdm', got {self.method!r}", (name, "method"))
        check_strength(self.strength)
        if not 1 <= self.stroke <= MAX_STROKE:  # also rejects NaN
            raise SettingError(f"stroke must be from 1 to {MAX_STROKE}, got {self.stroke}", "stroke")
        check_size(self.size)
        check_size(self.style_size, "style_size")


@dataclass(frozen=True)
class MatchOptions:
    """Options for matching the colours of files; see `match_picture`. Masks are files, resized to their pictures."""

    space: str = "rgb"
    method: Method = "channels"
    strength: float = 1.0
    ties: str = "smooth"
    tolerance: float = 0.0
    mask: Path | None = None
    reference_masks: Sequence[Path] = ()
    nodata: float | None = None
    seed: int = 0
    audio: Audio = "keep"
    device: Any = "cpu"

    def __post_init__(self) -> None:
        check_match(self.space, self.method, self.strength, self.ties, self.tolerance)
        check_choice("audio", self.audio, get_args(Audio))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `match_picture` with a prepared reference, except the mask."""
        return {name: getattr(self, name) for name in ("strength", "ties", "tolerance", "nodata", "seed", "device")}


def check_match(
    space: str, method: Method, strength: float = 1.0, ties: str = MatchOptions.ties, tolerance: float = 0.0
) -> None:
    """Raise unless the options of a colour match are valid and compatible."""
    for name, value, allowed in (("space", space, SPACES), ("method", method, get_args(Method)), ("ties", ties, TIES)):
        check_choice(name, value, tuple(allowed))
    if isinstance(strength, str):  # "auto" applies to styles
        raise SettingError(f"strength must be a number from 0 to 1, got {strength!r}", "strength")
    check_strength(strength, 1)
    check_tolerance(tolerance)
    if method == "joint" and space == "luminance":
        raise SettingError("luminance is one channel, which cannot be matched jointly; use rgb or lab", ("space", "method"))
    if method == "joint" and tolerance:
        raise SettingError("a joint match has no tolerance; use method='channels', or tolerance=0", ("tolerance", "method"))


def check_strength(strength: Strength, batch: int | None = None) -> None:
    """Raise unless ``strength`` is "auto", a number in [0, 1], or a tensor of such numbers for a batch."""
    if isinstance(strength, str) and strength != "auto":
        raise SettingError(f"strength must be 'auto' or a number from 0 to 1, got {strength!r}", "strength")
    if isinstance(strength, str) or (isinstance(strength, float | int) and 0 <= strength <= 1):
        return
    values = strength if isinstance(strength, Tensor) else torch.tensor(strength, dtype=torch.float64, device="cpu")
    if values.ndim > 1 or (batch is not None and values.numel() not in (1, batch)):
        raise SettingError(
            f"strength must be a number or have shape ({batch or 'batch'},), got {tuple(values.shape)}", "strength"
        )
    if not bool(((values >= 0) & (values <= 1)).all()):  # also rejects NaN
        raise SettingError(f"strength must be from 0 (the content) to 1 (the style), got {values.tolist()}", "strength")
