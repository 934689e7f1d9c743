"""Modules that remember settings and call `efdm.ops`."""

from efdm.nn.domains import domains_of_batch
from efdm.nn.insert import activate, activated, deactivate, deactivated, mix_after, mixes_of, stages_of, unmix
from efdm.nn.mix import EFDMix, FeatureMix, MixStyle
from efdm.nn.pairing import PAIRINGS
from efdm.nn.stages import FAMILIES

__all__ = [
    "FAMILIES",
    "PAIRINGS",
    "EFDMix",
    "FeatureMix",
    "MixStyle",
    "activate",
    "activated",
    "deactivate",
    "deactivated",
    "domains_of_batch",
    "mix_after",
    "mixes_of",
    "stages_of",
    "unmix",
]
