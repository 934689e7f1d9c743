"""Settings that the recipes for PACS share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from efdm.data.pacs import CROSSVAL, PICTURES
from efdm.lab.protocols import PROTOCOLS
from efdm.lab.published import PUBLISHED
from efdm.lab.recipe import Recipe

# the paper, for ResNets
PACS_PAPER: Mapping[str, Any] = {
    "weights": "timm", "batch": 64, "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4,
    "schedule": "cosine", "augmentation": "paper", "size": 224,
    "evaluate_every": 500,  # ours; the paper evaluates at the end only
}  # fmt: skip
PACS_MOBILENETV2: Mapping[str, Any] = {
    **PACS_PAPER, "backbone": "mobilenetv2_100",
    "stages": ("blocks.1", "blocks.2", "blocks.4"),  # the ends of strides 4, 8 and 16, like layer1, 2, 3 of a ResNet
    "iterations": 1600, "lr": 3e-3, "evaluate_every": 400,
}  # fmt: skip
PACS_RESNET18: Mapping[str, Any] = {
    **PACS_PAPER, "backbone": "resnet18", "weights": "resnet18.timm.fp16.safetensors",
    "stages": ("layer1", "layer2", "layer3"),  # paper
    "iterations": 1600, "lr": 4e-3,  # chosen by pacs_grid_resnet18
    "evaluate_every": 0,  # as the paper: at the end only
}  # fmt: skip
PACS_RESNET50: Mapping[str, Any] = {
    **PACS_RESNET18, "backbone": "resnet50_v1", "weights": "resnet50v1.timm.fp16.safetensors",
    "iterations": 400, "lr": 4e-3,  # chosen by pacs_grid_resnet50
}  # fmt: skip
# claims about distribution noise, a method of our own
NOISE_CONTRASTS = tuple((row, "distribution-noise") for row in ("erm", "efdmix-flow", "dsu", "crossnorm"))
STABLE = "efdmix-stable would equal efdmix bit for bit: the kernels sort equal values by position."


def paper_lengths(protocol: str) -> dict[str, dict[str, int]]:
    """Return the iterations of 50 epochs for each column. An epoch skips the last, incomplete batch of the training lists.

    >>> paper_lengths("single-source")["photo"]
    {'iterations': 1150}
    """
    row = PROTOCOLS[protocol]
    train = {domain: sum(PICTURES[domain]) - CROSSVAL[domain] for domain in PICTURES}
    pictures = {row.column(cell): sum(train[domain] for domain in cell.train) for cell in row.cells(list(PICTURES))}
    return {column: {"iterations": 50 * (count // PACS_PAPER["batch"])} for column, count in pictures.items()}


def pacs_resnet(
    depth: int,
    protocol: str,
    methods: Mapping[str, Mapping[str, Any]] | Sequence[str],
    *,
    schedule: Literal["short", "paper"] = "short",
    **fields: Any,
) -> Recipe:
    """Return a recipe for PACS with ResNet-18 or ResNet-50, on our short schedule or the paper's (50 epochs, lr 1e-3)."""
    common = {18: PACS_RESNET18, 50: PACS_RESNET50}[depth]
    changes: dict[str, Any] = {"lr": PACS_PAPER["lr"]} if schedule == "paper" else {}
    if (depth, protocol) == (50, "leave-one-out"):
        changes["stages"] = ("layer1", "layer2")  # paper
    lines = PUBLISHED["pacs", protocol, "resnet50" if protocol == "domainbed" else f"resnet{depth}"]
    if "efdmix" not in methods:  # the authors' code has the gradient
        lines = tuple(replace(line, row="efdmix-flow") if line.row == "efdmix" else line for line in lines)
    return Recipe(**{
        "protocol": protocol,
        "data": "pacs",
        "methods": methods,
        "settings": {**common, **changes},
        "columns": paper_lengths(protocol) if schedule == "paper" else {},
        "selections": ("last",),
        "picture_size": 227,  # the stored size
        "published": lines,
        "std": "error",
        **fields,
    })  # fmt: skip
