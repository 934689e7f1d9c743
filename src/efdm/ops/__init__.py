"""Pure functions on features ``(b, c, *space)``: matching, mixing and channel statistics."""

from efdm.ops.joint import match_jointly, match_principal, wct
from efdm.ops.match import efdm, histogram_match
from efdm.ops.mix import blend, efdmix, interpolate_styles, mix_features, mixstyle
from efdm.ops.moments import ChannelStats, adain, adamean, adastd, channel_stats, tied_share
from efdm.ops.noise import distribution_noise
from efdm.ops.projection import project
from efdm.ops.styles import Partners, PreparedStyle, Style, prepare
from efdm.ops.table import MATCHERS, Matcher

__all__ = [
    "MATCHERS", "ChannelStats", "Matcher", "Partners", "PreparedStyle", "Style", "adain", "adamean", "adastd", "blend",
    "channel_stats", "distribution_noise", "efdm", "efdmix", "histogram_match", "interpolate_styles", "match_jointly",
    "match_principal", "mix_features", "mixstyle", "prepare", "project", "tied_share", "wct",
]  # fmt: skip
