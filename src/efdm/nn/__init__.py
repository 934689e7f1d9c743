"""Modules that remember settings and call `efdm.ops`."""

from efdm.nn.domains import domains_of_batch
from efdm.nn.dropblock import DropBlock
from efdm.nn.dsu import DSU
from efdm.nn.insert import active, find_stage, mix_after, mixes_of, set_active, stages_of, unmix
from efdm.nn.layer import FeatureLayer
from efdm.nn.manifold import ManifoldMixup
from efdm.nn.mix import CrossNorm, EFDMix, FeatureMix, MixStyle
from efdm.nn.pairing import PAIRINGS, Pairing
from efdm.nn.stages import FAMILIES, stages_at

__all__ = [
    "DSU",
    "FAMILIES",
    "PAIRINGS",
    "CrossNorm",
    "DropBlock",
    "EFDMix",
    "FeatureLayer",
    "FeatureMix",
    "ManifoldMixup",
    "MixStyle",
    "Pairing",
    "active",
    "domains_of_batch",
    "find_stage",
    "mix_after",
    "mixes_of",
    "set_active",
    "stages_at",
    "stages_of",
    "unmix",
]
