"""The table of methods: no change at all, or a feature layer after stages."""

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
