"""The table of matchers. Layers, the command line, tests and benchmarks read it.

A new matcher is a function and a row in this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor

from efdm.ops import match, moments
from efdm.ops.joint import match_jointly, match_principal, wct
from efdm.ops.match import efdm, histogram_match
from efdm.ops.moments import MIX_EPS, adain, adamean, adastd
from efdm.ops.styles import Style

_DETACHED_STATS = {"content_stats": "stop"}  # as in the authors' MixStyle code
_MOMENT_OPTIONS = frozenset({"channel_dim", "eps", "style_grad", "content_stats"})  # all options except the masks


@dataclass(frozen=True)
class Matcher:
    """A row of the table, called as ``row(content, style, **options)``."""

    function: Callable[..., Tensor]
    title: str
    formula: str
    matches: tuple[str, ...]  # fields of ChannelStats that the output shares with the style
    channels: Literal["separate", "joint"] = "separate"  # joint rows need all channels at once
    straight_through: bool = False  # identity gradient; the function has the option content_grad
    augmentation: Mapping[str, object] = field(default_factory=dict)  # default options inside a network
    mix_partners: Callable[..., Tensor] | None = None  # fused match and blend within a batch
    fast_options: frozenset[str] = frozenset({"channel_dim", "style_grad"})  # options that mix_partners supports

    def __call__(self, content: Tensor, style: Style, **options: Any) -> Tensor:
        return self.function(content, style, **options)


MATCHERS: Mapping[str, Matcher] = {
    "efdm": Matcher(
        efdm, "exact feature distribution matching", "o[argsort(x)] = sort(y)",
        ("mean", "std", "skewness", "kurtosis", "infinity_norm"), straight_through=True, mix_partners=match.mix_partners,
    ),
    "adain": Matcher(
        adain, "mean and standard deviation", "(x - mu_x) / s_x * s_y + mu_y", ("mean", "std"),
        augmentation={"eps": MIX_EPS, **_DETACHED_STATS}, mix_partners=moments.mix_partners, fast_options=_MOMENT_OPTIONS,
    ),
    "adamean": Matcher(
        adamean, "mean only", "x - mu_x + mu_y", ("mean",), augmentation=_DETACHED_STATS,
        mix_partners=partial(moments.mix_partners, std="content"), fast_options=_MOMENT_OPTIONS,
    ),
    "adastd": Matcher(
        adastd, "standard deviation only", "x / s_x * s_y (scaled mean) or (x - mu_x) / s_x * s_y + mu_x (content mean)",
        ("std",), augmentation={"mean": "content", "eps": MIX_EPS, **_DETACHED_STATS},
        mix_partners=moments.mix_partners, fast_options=_MOMENT_OPTIONS | {"mean"},
    ),
    "hm": Matcher(
        histogram_match, "histogram matching, ties merged", "F_y^-1(F_x(x))", (), straight_through=True,
    ),
    "joint": Matcher(
        match_jointly, "all channels jointly, along rotated axes", "wct(x, y), R^T efdm(R x, R y) repeatedly, efdm(x, y)",
        ("mean", "std", "skewness", "kurtosis", "infinity_norm"), channels="joint", straight_through=True,
    ),
    "wct": Matcher(
        wct, "mean and covariance", "S_y^1/2 S_x^-1/2 (x - mu_x) + mu_y", ("mean", "std"), channels="joint",
        straight_through=True,
    ),
    "pca": Matcher(
        match_principal, "exact along the principal axes of the style", "V efdm(V^T x, V^T y)", ("mean",), channels="joint",
        straight_through=True,
    ),
}  # fmt: skip
