"""Settings that the recipes for PACS share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from efdm.data.pacs import CROSSVAL, PICTURES
from efdm.dg.protocols import PROTOCOLS
from efdm.lab.literature import published
from efdm.lab.recipe import Recipe

# the paper, for ResNets
PACS_PAPER: Mapping[str, Any] = MappingProxyType({
    "weights": "timm",
    "batch": 64,
    "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine",
    "augmentation": "paper",
    "size": 224,
    "evaluate_every": 500,  # ours; the paper evaluates at the end only
})  # fmt: skip
PACS_SHORT: Mapping[str, Any] = MappingProxyType({**PACS_PAPER, "iterations": 1600, "evaluate_every": 400})
PACS_MOBILENETV2: Mapping[str, Any] = MappingProxyType({
    **PACS_SHORT,
    "backbone": "mobilenetv2_100",
    "stages": ("blocks.1", "blocks.2", "blocks.4"),  # the ends of strides 4, 8 and 16, like layer1, 2, 3 of a ResNet
    "lr": 3e-3,
})  # fmt: skip
# paper: 150 epochs of 128 = 2 domains x 64; epochs of that sampler vary in length, about 5,100 iterations in total
PACS_LABELS: Mapping[str, Any] = MappingProxyType({"batch": 128, "domains_per_batch": 2, "iterations": 5100})


def pacs_lengths(protocol: str, epochs: int, batch: int = 64) -> dict[str, dict[str, int]]:
    """Return the iterations for each column: an epoch is one pass over the training lists, without an incomplete batch.

    >>> pacs_lengths("single-source", 50)["photo"]
    {'iterations': 1150}
    """
    row = PROTOCOLS[protocol]
    train = {domain: sum(PICTURES[domain]) - CROSSVAL[domain] for domain in PICTURES}
    pictures = {row.column(cell): sum(train[domain] for domain in cell.train) for cell in row.cells(list(PICTURES))}
    return {column: {"iterations": epochs * (count // batch)} for column, count in pictures.items()}


def pacs_resnet(depth: int, protocol: str, methods: Mapping[str, Mapping[str, Any]], **fields: Any) -> Recipe:
    """Return the recipe of the paper's PACS experiments with ResNet-18 or ResNet-50."""
    stages = 2 if (depth, protocol) == (50, "leave-one-out") else 3  # paper
    return Recipe(
        protocol=protocol,
        data="pacs",
        methods=methods,
        settings={
            **PACS_PAPER,
            "backbone": f"resnet{depth}.tv_in1k",  # torchvision's weights, by timm's name
            "stages": tuple(f"layer{n}" for n in range(1, stages + 1)),
        },
        columns=pacs_lengths(protocol, epochs=50),  # paper
        picture_size=227,  # the stored size
        published=published("pacs", protocol, f"resnet{depth}"),
        **fields,
    )
