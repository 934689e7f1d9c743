"""PACS, single source, MobileNetV2, a short schedule.

claim     the paper's order ERM < MixStyle < EFDMix with one training domain, asked of a small network.
command   efdm dg run pacs_single_source_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/one --lanes 4
time      --seeds 3 on one H200: 9 minutes of steps in four lanes, by the records; reading and compiling not counted
expected  3 seeds: ERM 45.4, MixStyle 52.3, EFDMix 53.4 (gradient to the style stopped) and 55.0 (flowing), pooled
runs      80 (4 methods x 4 domains x 5 seeds)

Everything but the domains is as in pacs_leave_one_out_mobilenetv2. A column is the domain that was trained on; the first
table pools the pictures of the other three, the second is the mean of their accuracies.
"""

from efdm.lab import PACS_MOBILENETV2, Recipe, published

recipe = Recipe(
    protocol="single-source",
    data="pacs",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow"],
    settings=PACS_MOBILENETV2,
    orders=(("erm", "mixstyle", "efdmix"), ("erm", "mixstyle", "efdmix-flow")),  # the paper, and its authors' code
    contrasts=(("efdmix", "efdmix-flow"),),
    published=published("pacs", "single-source", "resnet18"),
)  # fmt: skip
