"""Exact feature distribution matching for PyTorch: match, blend, pair.

`efdm.ops` contains functions on features, `efdm.nn` layers and losses, `efdm.kernels` the row kernels.
"""

# ruff: noqa: F403, F405 - __all__ lists the names once, for type checkers and at run time

import importlib
from typing import TYPE_CHECKING

from efdm.version import VERSION

if TYPE_CHECKING:
    from efdm.nn import *
    from efdm.ops import *
    from efdm.style import match_picture as match_picture

__version__ = VERSION

__all__ = [
    "DSU", "MATCHERS", "CrossNorm", "DistributionNoise", "EFDMix", "FeatureMix", "MixStyle", "Partners", "PreparedStyle",
    "active", "adain", "adamean", "adastd", "blend", "channel_stats", "distribution_noise", "domains_of_batch", "efdm",
    "efdmix", "histogram_match", "interpolate_styles", "mix_after", "mixstyle", "prepare", "set_active", "stages_of",
    "tied_share", "unmix",
]  # fmt: skip


PICTURES = ("match_picture",)  # names of `efdm.style`; not in __all__, because a star import must need only torch

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the public names on first use, so that `efdm --help` starts without torch."""
        if name in ("kernels", "nn", "ops"):
            return importlib.import_module(f"efdm.{name}")
        if name in PICTURES:
            return getattr(importlib.import_module("efdm.style"), name)
        if name not in __all__:
            raise AttributeError(f"module 'efdm' has no attribute {name!r}")
        ops, nn = importlib.import_module("efdm.ops"), importlib.import_module("efdm.nn")
        globals().update({each: getattr(ops if hasattr(ops, each) else nn, each) for each in __all__})
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *PICTURES, "kernels", "nn", "ops"})
