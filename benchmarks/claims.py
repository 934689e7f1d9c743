"""The paper's claims on domain generalization and re-identification that comparisons of rows can test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Claim:
    """Row ``second`` of the recipes is better than ``first``, or similar to it.

    ``paper`` describes what the paper shows instead of numbers.
    """

    place: str
    text: str
    first: str
    second: str
    recipes: tuple[str, ...]
    kind: Literal["better", "similar"] = "better"
    selection: str = "last"
    paper: str = ""


def claims(place: str, recipes: tuple[str, ...], pairs: Mapping[str, tuple[str, str]], **fields: Any) -> Iterator[Claim]:
    """Yield a claim for each text and its rows ``(first, second)``."""
    return (Claim(place, text, first, second, recipes, **fields) for text, (first, second) in pairs.items())


# shown after the network, to distinguish recipes with the same one
VARIANTS = {"pacs_paper_schedule_resnet18": ", paper's schedule", "pacs_relu_mobilenetv2": ", mixed after ReLU"}
NETWORKS = {
    "resnet18": "ResNet-18", "resnet18_prelu": "ResNet-18 with PReLU", "resnet50_v1": "ResNet-50",
    "resnet50.tv_in1k": "ResNet-50", "mobilenetv2_100": "MobileNetV2", "osnet_x1_0": "OSNet",
}  # fmt: skip
# heading of a table -> places in the paper
SECTIONS: dict[str, tuple[str, ...]] = {
    "Leave one out": ("Table 1, leave one out",),
    "Single source": ("Table 1, single source",),
    "Gradient to the style": ("authors' code",),
    "Orders of statistics and of equal values": ("Figure 9", "Figure 10"),
    "DomainBed's protocol": ("Section 4.2, DomainBed",),
    "Re-identification": ("Table 2, re-identification",),
    "Features": ("Figure 1", "Figure 3", "Figure 4"),
    "Other claims": ("Section 3.2", "Section 4.2", "Section 4.3"),
}
LEAVE_ONE_OUT = (
    "pacs_leave_one_out_resnet18", "pacs_paper_schedule_resnet18", "pacs_leave_one_out_resnet50",
    "pacs_leave_one_out_mobilenetv2",
)  # fmt: skip
SINGLE_SOURCE = ("pacs_single_source_resnet18", "pacs_single_source_resnet50", "pacs_single_source_mobilenetv2")
ORDERS = ("pacs_order_study_resnet18", "pacs_prelu_resnet18", "pacs_order_study_mobilenetv2", "pacs_relu_mobilenetv2")
TIES = ("pacs_order_study_resnet18", "pacs_prelu_resnet18", "pacs_ties_mobilenetv2")
DOMAINBED = ("pacs_domainbed_resnet18", "pacs_domainbed_resnet50")
REID = ("reid_market_grid_osnet", "reid_market_cuhk01_osnet", "reid_market_cuhk01_resnet18")
STOP, FLOW = "EFDMix (stop)", "EFDMix (flow)"
GAIN = f"{FLOW} gains more over MixStyle with one training domain than with three"
CLAIMS = (
    *claims("Table 1, leave one out", LEAVE_ONE_OUT, {
        "MixStyle is better than ERM": ("erm", "mixstyle"),
        f"{STOP} is better than MixStyle": ("mixstyle", "efdmix"),
        f"{FLOW} is better than MixStyle": ("mixstyle", "efdmix-flow"),
        "with labels, MixStyle is better than ERM": ("erm", "mixstyle-labels"),
        f"with labels, {STOP} is better than MixStyle": ("mixstyle-labels", "efdmix-labels"),
        f"with labels, {FLOW} is better than MixStyle": ("mixstyle-labels", "efdmix-labels-flow"),
    }),
    *claims("Table 1, leave one out", ("pacs_leave_one_out_resnet18",), {
        f"{FLOW} is better than Mixup": ("mixup", "efdmix-flow"),
        f"{FLOW} is better than Manifold Mixup": ("manifold-mixup", "efdmix-flow"),
        f"{FLOW} is better than CutMix": ("cutmix", "efdmix-flow"),
        f"{FLOW} is better than Cutout": ("cutout", "efdmix-flow"),
        f"{FLOW} is better than DropBlock": ("dropblock", "efdmix-flow"),
        f"with labels, {FLOW} is better than JiGen": ("jigen", "efdmix-labels-flow"),
        f"with labels, {FLOW} is better than L2A-OT": ("l2a-ot", "efdmix-labels-flow"),
    }),
    *claims("Table 1, single source", SINGLE_SOURCE, {
        "MixStyle is better than ERM": ("erm", "mixstyle"),
        f"{STOP} is better than MixStyle": ("mixstyle", "efdmix"),
        f"{FLOW} is better than MixStyle": ("mixstyle", "efdmix-flow"),
    }),
    Claim("Table 1, single source", f"{FLOW} is better than ERM", "erm", "efdmix-flow", ("pacs_single_source_resnet50",)),
    Claim("authors' code", f"leave one out: {FLOW} is better than {STOP}", "efdmix", "efdmix-flow", LEAVE_ONE_OUT),
    Claim("authors' code", f"single source: {FLOW} is better than {STOP}", "efdmix", "efdmix-flow", SINGLE_SOURCE),
    *claims("authors' code", ("pacs_order_study_resnet18", "pacs_leave_one_out_mobilenetv2"), {
        "leave one out, with the gradient (flow) in both: EFDMix is better than MixStyle": ("mixstyle-flow", "efdmix-flow"),
    }),
    *claims("authors' code", ("pacs_single_source_resnet18",), {
        "single source, with the gradient (flow) in both: EFDMix is better than MixStyle": ("mixstyle-flow", "efdmix-flow"),
    }),
    *(
        Claim(
            "Section 4.2, DomainBed", f"{FLOW} is better than ERM, {rule}", "erm", "efdmix-flow", DOMAINBED, selection=rule,
        )
        for rule in ("oracle", "training-domain validation", "leave-one-domain-out cross-validation")
    ),
    *claims("Table 2, re-identification", REID, {
        "MixStyle is better than the baseline": ("erm", "mixstyle"),
        f"{STOP} is better than MixStyle": ("mixstyle", "efdmix"),
        f"{FLOW} is better than MixStyle": ("mixstyle", "efdmix-flow"),
    }),
    *claims("Figure 9", ORDERS, {
        "means alone (AdaMean) help": ("erm", "adamean"),
        "standard deviations alone (AdaStd) help": ("erm", "adastd"),
        "AdaMean is slightly better than AdaStd": ("adastd", "adamean"),
    }, paper="figure"),
    *claims("Figure 9", ORDERS, {
        "AdaIN is better than AdaMean": ("adamean", "mixstyle"),
        "AdaIN is better than AdaStd": ("adastd", "mixstyle"),
    }, paper="figure, more than +1"),
    *claims("Figure 9", ORDERS, {
        "EFDM (stop) is better than AdaIN": ("mixstyle", "efdmix"),
        "EFDM is better than histogram matching": ("hm", "efdmix"),
        "AdaIN is better than histogram matching": ("hm", "mixstyle"),
    }, paper="figure"),
    *claims("Figure 10", TIES, {
        "random order of equal values: similar accuracy": ("efdmix", "efdmix-random"),
        "order by neighbours: similar accuracy": ("efdmix", "efdmix-neighbor"),
    }, kind="similar", paper="figure"),
    *claims("Section 3.2", ("pacs_ablation_resnet18",), {
        "mixing (EFDMix) is better than exchanging distributions (EFDM)": ("exchange", "efdmix-flow"),
    }),
)  # fmt: skip
