"""Exact feature distribution matching for PyTorch: match, blend, pair.

Functions on features are in `efdm.ops`, layers in `efdm.nn`, row kernels in `efdm.kernels`.
"""

from efdm.nn import (
    DSU,
    CrossNorm,
    EFDMix,
    FeatureMix,
    MixStyle,
    active,
    domains_of_batch,
    mix_after,
    set_active,
    stages_of,
    unmix,
)
from efdm.ops import (
    MATCHERS,
    Partners,
    PreparedStyle,
    adain,
    adamean,
    adastd,
    blend,
    channel_stats,
    efdm,
    efdmix,
    histogram_match,
    interpolate_styles,
    mixstyle,
    prepare,
    tied_share,
)
from efdm.version import VERSION

__version__ = VERSION

__all__ = [
    "DSU",
    "MATCHERS",
    "CrossNorm",
    "EFDMix",
    "FeatureMix",
    "MixStyle",
    "Partners",
    "PreparedStyle",
    "active",
    "adain",
    "adamean",
    "adastd",
    "blend",
    "channel_stats",
    "domains_of_batch",
    "efdm",
    "efdmix",
    "histogram_match",
    "interpolate_styles",
    "mix_after",
    "mixstyle",
    "prepare",
    "set_active",
    "stages_of",
    "tied_share",
    "unmix",
]
