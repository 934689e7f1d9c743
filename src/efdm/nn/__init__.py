"""Layers and losses on features."""

from efdm.nn.domains import domains_of_batch
from efdm.nn.dropblock import DropBlock
from efdm.nn.dsu import DSU
from efdm.nn.insert import active, feature_layers, mix_after, set_active, unmix
from efdm.nn.layer import FeatureLayer
from efdm.nn.manifold import ManifoldMixup
from efdm.nn.mix import CrossNorm, EFDMix, FeatureMix, MixStyle
from efdm.nn.noise import DistributionNoise
from efdm.nn.pairing import PAIRINGS, Pairing
from efdm.nn.stages import FAMILIES, find_stage, stages_at, stages_of
from efdm.nn.table import LAYERS, LayerRow

__all__ = [
    "DSU", "FAMILIES", "LAYERS", "PAIRINGS", "CrossNorm", "DistributionNoise", "DropBlock", "EFDMix", "FeatureLayer",
    "FeatureMix", "LayerRow", "ManifoldMixup", "MixStyle", "Pairing", "active", "domains_of_batch", "feature_layers",
    "find_stage", "mix_after", "set_active", "stages_at", "stages_of", "unmix",
]  # fmt: skip
