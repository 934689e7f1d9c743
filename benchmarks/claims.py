"""The paper's claims on domain generalization and re-identification that comparisons of rows can test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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


# shown after the network, to distinguish recipes with the same one
VARIANTS = {"pacs_paper_schedule_resnet18": ", paper's schedule", "pacs_relu_mobilenetv2": ", mixed after ReLU"}
NETWORKS = {
    "resnet18": "ResNet-18", "resnet18_prelu": "ResNet-18 with PReLU", "resnet50_v1": "ResNet-50",
    "resnet50.tv_in1k": "ResNet-50", "mobilenetv2_100": "MobileNetV2", "osnet_x1_0": "OSNet",
}  # fmt: skip
LEAVE_ONE_OUT = (
    "pacs_leave_one_out_resnet18", "pacs_paper_schedule_resnet18", "pacs_leave_one_out_resnet50",
    "pacs_leave_one_out_mobilenetv2",
)  # fmt: skip
SINGLE_SOURCE = ("pacs_single_source_resnet18", "pacs_single_source_resnet50", "pacs_single_source_mobilenetv2")
ORDERS = ("pacs_order_study_resnet18", "pacs_prelu_resnet18", "pacs_order_study_mobilenetv2", "pacs_relu_mobilenetv2")
TIES = ("pacs_order_study_resnet18", "pacs_prelu_resnet18", "pacs_ties_mobilenetv2")
DOMAINBED = ("pacs_domainbed_resnet18", "pacs_domainbed_resnet50")
STOP, FLOW = "EFDMix (stop)", "EFDMix (flow)"
ONE_OUT, ONE_IN, ON_BED = "Table 1, leave one out", "Table 1, single source", "Section 4.2, DomainBed"
REID_TABLE = "Table 2, re-identification"
FIGURE_9, FIGURE_10, FIGURE, MORE_THAN_1 = "Figure 9", "Figure 10", "figure", "figure, more than +1"
GAIN = f"{FLOW} gains more over MixStyle with one training domain than with three"
# heading of a table -> places in the paper
SECTIONS: dict[str, tuple[str, ...]] = {
    "Leave one out": (ONE_OUT,),
    "Single source": (ONE_IN,),
    "Gradient to the style": ("authors' code",),
    "Orders of statistics and of equal values": (FIGURE_9, FIGURE_10),
    "DomainBed's protocol": (ON_BED,),
    "Re-identification": (REID_TABLE,),
    "Features": ("Figure 1", "Figure 3", "Figure 4"),
    "Other claims": ("Section 3.2", "Section 4.2", "Section 4.3"),
}
REID = ("reid_market_grid_osnet", "reid_market_cuhk01_osnet", "reid_market_cuhk01_resnet18")
CLAIMS = (
    Claim(ONE_OUT, "MixStyle is better than ERM", "erm", "mixstyle", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"{STOP} is better than MixStyle", "mixstyle", "efdmix", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"{FLOW} is better than MixStyle", "mixstyle", "efdmix-flow", LEAVE_ONE_OUT),
    Claim(ONE_OUT, "with labels, MixStyle is better than ERM", "erm", "mixstyle-labels", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"with labels, {STOP} is better than MixStyle", "mixstyle-labels", "efdmix-labels", LEAVE_ONE_OUT),
    Claim(ONE_OUT, f"with labels, {FLOW} is better than MixStyle", "mixstyle-labels", "efdmix-labels-flow", LEAVE_ONE_OUT),
    *(
        Claim(ONE_OUT, f"{FLOW} is better than {name}", row, "efdmix-flow", LEAVE_ONE_OUT[:1])
        for row, name in {
            "mixup": "Mixup", "manifold-mixup": "Manifold Mixup", "cutmix": "CutMix", "cutout": "Cutout",
            "dropblock": "DropBlock",
        }.items()
    ),
    Claim(ONE_OUT, f"with labels, {FLOW} is better than JiGen", "jigen", "efdmix-labels-flow", LEAVE_ONE_OUT[:1]),
    Claim(ONE_OUT, f"with labels, {FLOW} is better than L2A-OT", "l2a-ot", "efdmix-labels-flow", LEAVE_ONE_OUT[:1]),
    Claim(ONE_IN, "MixStyle is better than ERM", "erm", "mixstyle", SINGLE_SOURCE),
    Claim(ONE_IN, f"{STOP} is better than MixStyle", "mixstyle", "efdmix", SINGLE_SOURCE),
    Claim(ONE_IN, f"{FLOW} is better than MixStyle", "mixstyle", "efdmix-flow", SINGLE_SOURCE),
    Claim(ONE_IN, f"{FLOW} is better than ERM", "erm", "efdmix-flow", SINGLE_SOURCE[1:2]),
    Claim("authors' code", f"leave one out: {FLOW} is better than {STOP}", "efdmix", "efdmix-flow", LEAVE_ONE_OUT),
    Claim("authors' code", f"single source: {FLOW} is better than {STOP}", "efdmix", "efdmix-flow", SINGLE_SOURCE),
    Claim(
        "authors' code", "leave one out, with the gradient (flow) in both: EFDMix is better than MixStyle", "mixstyle-flow",
        "efdmix-flow", ("pacs_order_study_resnet18", "pacs_leave_one_out_mobilenetv2"),
    ),
    Claim(
        "authors' code", "single source, with the gradient (flow) in both: EFDMix is better than MixStyle", "mixstyle-flow",
        "efdmix-flow", SINGLE_SOURCE[:1],
    ),
    *(
        Claim(ON_BED, f"{FLOW} is better than ERM, {rule}", "erm", "efdmix-flow", DOMAINBED, selection=rule)
        for rule in ("oracle", "training-domain validation", "leave-one-domain-out cross-validation")
    ),
    Claim(REID_TABLE, "MixStyle is better than the baseline", "erm", "mixstyle", REID),
    Claim(REID_TABLE, f"{STOP} is better than MixStyle", "mixstyle", "efdmix", REID),
    Claim(REID_TABLE, f"{FLOW} is better than MixStyle", "mixstyle", "efdmix-flow", REID),
    *(
        Claim(FIGURE_9, text, first, second, ORDERS, paper=paper)
        for text, first, second, paper in (
            ("means alone (AdaMean) help", "erm", "adamean", FIGURE),
            ("standard deviations alone (AdaStd) help", "erm", "adastd", FIGURE),
            ("AdaMean is slightly better than AdaStd", "adastd", "adamean", FIGURE),
            ("AdaIN is better than AdaMean", "adamean", "mixstyle", MORE_THAN_1),
            ("AdaIN is better than AdaStd", "adastd", "mixstyle", MORE_THAN_1),
            ("EFDM (stop) is better than AdaIN", "mixstyle", "efdmix", FIGURE),
            ("EFDM is better than histogram matching", "hm", "efdmix", FIGURE),
            ("AdaIN is better than histogram matching", "hm", "mixstyle", FIGURE),
        )
    ),
    *(
        Claim(FIGURE_10, f"{order}: similar accuracy", "efdmix", second, TIES, "similar", paper=FIGURE)
        for order, second in (
            ("random order of equal values", "efdmix-random"), ("order by neighbours", "efdmix-neighbor"),
        )
    ),
    Claim(
        "Section 3.2", "mixing (EFDMix) is better than exchanging distributions (EFDM)", "exchange", "efdmix-flow",
        ("pacs_ablation_resnet18",),
    ),
)  # fmt: skip
