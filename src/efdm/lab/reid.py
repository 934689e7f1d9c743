"""Settings that the recipes for re-identification share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from efdm.lab.published import ORDERS
from efdm.lab.recipe import Recipe

METHODS = ("erm", "mixstyle", "efdmix", "efdmix-flow", "dsu")
BATCH = 64  # authors' code: 32, for 60 epochs; the other settings that a recipe does not name are theirs


def reid_market_cuhk01(settings: Mapping[str, Any], iterations: Mapping[str, int], **fields: Any) -> Recipe:
    """Return a recipe for Market-1501's training half and CUHK01, with the ``iterations`` for each training set.

    Neither set has a published test split of its own here, so the queries are drawn: see `efdm.reid.PROTOCOLS`.
    """
    return Recipe(**{
        "task": "reid",
        "protocol": "cross-dataset",
        "data": "market, cuhk01",
        "methods": METHODS,
        "settings": {"batch": BATCH, **settings},
        "columns": {
            "cuhk01": {"iterations": iterations["market"], "protocols": {"cuhk01": "camera-pair"}},
            "market": {"iterations": iterations["cuhk01"], "protocols": {"market": "person-camera"}},
        },
        "seeds": (0, 1, 2),
        "orders": ORDERS,
        "contrasts": (("efdmix", "efdmix-flow"), ("erm", "efdmix"), ("erm", "efdmix-flow"), ("erm", "dsu")),
        "std": "error",
        **fields,
    })  # fmt: skip
