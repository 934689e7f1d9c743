"""The table of methods: the baseline, and the feature layers of `efdm.nn.LAYERS`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from efdm.nn import LAYERS, FeatureLayer, LayerRow

ERM = LayerRow(
    "erm", "empirical risk minimization, the baseline", "Vapnik, 1998", lambda generator: FeatureLayer(0.0), min_batch=1
)
METHODS: Mapping[str, LayerRow] = MappingProxyType({"erm": ERM, **LAYERS})


def mixes(method: str) -> bool:
    """Return True if a method inserts layers after stages."""
    return method != "erm"
