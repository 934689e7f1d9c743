"""The table of matching methods. Everything that offers a choice of method reads it: layers, commands, tests, benchmarks.

A new method is one function and one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor

from efdm.ops import match, moments
from efdm.ops.match import efdm, histogram_match
from efdm.ops.moments import MIX_EPS, adain, adamean, adastd
from efdm.ops.styles import Style

_MIX_STATISTICS = {"content_stats": "stop"}  # MixStyle's own code detaches them
_OF_MOMENTS = frozenset({"channel_dim", "eps", "style_grad", "content_stats"})  # all but masks


@dataclass(frozen=True)
class Matcher:
    """One row: call it as ``row(content, style, **options)``."""

    function: Callable[..., Tensor]
    title: str
    formula: str
    matches: tuple[str, ...]  # fields of ChannelStats that the output takes from the style
    straight_through: bool = False  # gradient of the identity: has content_grad
    augmentation: Mapping[str, object] = field(default_factory=dict)  # options when it is used inside a network
    # a faster way to match and blend within a batch, if all options are among the ones it knows
    mix_partners: Callable[..., Tensor] | None = None
    fast_options: frozenset[str] = frozenset({"channel_dim"})

    def __call__(self, content: Tensor, style: Style, **options: Any) -> Tensor:
        return self.function(content, style, **options)


MATCHERS: Mapping[str, Matcher] = MappingProxyType({
    "efdm": Matcher(
        efdm, "exact feature distribution matching", "o[argsort(x)] = sort(y)",
        ("mean", "std", "skewness", "kurtosis", "infinity_norm"), straight_through=True, mix_partners=match.mix_partners,
    ),
    "adain": Matcher(
        adain, "mean and standard deviation", "(x - mu_x) / s_x * s_y + mu_y", ("mean", "std"),
        augmentation={"eps": MIX_EPS, **_MIX_STATISTICS}, mix_partners=moments.mix_partners, fast_options=_OF_MOMENTS,
    ),
    "adamean": Matcher(
        adamean, "mean alone", "x - mu_x + mu_y", ("mean",), augmentation=_MIX_STATISTICS,
        mix_partners=partial(moments.mix_partners, std="content"), fast_options=_OF_MOMENTS,
    ),
    "adastd": Matcher(
        adastd, "standard deviation alone", "x / s_x * s_y (mean scaled) or (x - mu_x) / s_x * s_y + mu_x (mean kept)",
        ("std",), augmentation={"mean": "content", "eps": MIX_EPS, **_MIX_STATISTICS},
        mix_partners=moments.mix_partners, fast_options=_OF_MOMENTS | {"mean"},
    ),
    "hm": Matcher(
        histogram_match, "histogram matching, ties merged", "F_y^-1(F_x(x))", (), straight_through=True,
    ),
})  # fmt: skip
