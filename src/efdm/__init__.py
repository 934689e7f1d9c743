"""Exact feature distribution matching for PyTorch: match, blend, pair.

Functions on features are in `efdm.ops`, layers in `efdm.nn`, row kernels in `efdm.kernels`.
"""

from efdm.nn import (
    EFDMix,
    FeatureMix,
    MixStyle,
    activate,
    activated,
    deactivate,
    deactivated,
    domains_of_batch,
    mix_after,
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
    "MATCHERS",
    "EFDMix",
    "FeatureMix",
    "MixStyle",
    "Partners",
    "PreparedStyle",
    "activate",
    "activated",
    "adain",
    "adamean",
    "adastd",
    "blend",
    "channel_stats",
    "deactivate",
    "deactivated",
    "domains_of_batch",
    "efdm",
    "efdmix",
    "histogram_match",
    "interpolate_styles",
    "mix_after",
    "mixstyle",
    "prepare",
    "tied_share",
    "unmix",
]
