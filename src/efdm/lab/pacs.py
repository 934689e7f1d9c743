"""What the recipes for PACS have in common, so that a number is changed in one place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from efdm.data.pacs import LINES
from efdm.dg.protocols import PROTOCOLS

# the paper, for ResNets
PACS_PAPER: Mapping[str, Any] = MappingProxyType({
    "weights": "timm",
    "batch": 64,
    "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine",
    "augmentation": "paper",
    "size": 224,
    "evaluate_every": 500,  # ours: the paper looks at the end alone
})  # fmt: skip
PACS_SHORT: Mapping[str, Any] = MappingProxyType({**PACS_PAPER, "iterations": 1600, "evaluate_every": 400})
PACS_MOBILENETV2: Mapping[str, Any] = MappingProxyType({
    **PACS_SHORT,
    "backbone": "mobilenetv2_100",
    "stages": ("blocks.1", "blocks.2", "blocks.4"),  # ends of strides 4, 8, 16, as layer1, 2, 3 of a ResNet
    "lr": 3e-3,
})  # fmt: skip


def pacs_lengths(protocol: str, epochs: int, batch: int = 64) -> dict[str, dict[str, int]]:
    """Iterations for each column of a table: an epoch goes once through the training lists of the domains that are trained
    on, and what does not fill a batch is dropped.

    >>> pacs_lengths("single-source", 50)["photo"]
    {'iterations': 1150}
    """
    row = PROTOCOLS[protocol]
    pictures = {row.column(cell): sum(LINES[domain]["train"] for domain in cell.train) for cell in row.cells(list(LINES))}
    return {column: {"iterations": epochs * (count // batch)} for column, count in pictures.items()}
