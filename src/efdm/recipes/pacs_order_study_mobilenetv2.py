"""PACS, leave one domain out, MobileNetV2: which orders of feature statistics matter.

claim     means (adamean) and deviations (adastd) help, both together (mixstyle, which is AdaIN) more, all orders (efdmix)
          most; histogram matching (hm), which merges ties, falls behind.
command   efdm dg run pacs_order_study_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/orders --lanes 4
time      on one H200: 17 minutes of steps in four lanes, by the records; reading and compiling not counted
expected  the paper shows this order in a figure without numbers, for ResNet-50: AdaIN more than 1 above AdaMean and AdaStd.
          Here ERM 77.3, AdaStd 78.3, EFDMix 80.2, HM 80.4, MixStyle 80.9, AdaMean 81.1, EFDMix with gradient flowing 81.8
runs      84 (7 methods x 4 domains x 3 seeds)

Everything else is as in pacs_leave_one_out_mobilenetv2, and most of the trainings are the same ones: put a copy of its
records.jsonl into the folder first, and they are not repeated.
"""

from efdm.lab import PACS_MOBILENETV2, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["erm", "adamean", "adastd", "mixstyle", "hm", "efdmix", "efdmix-flow"],
    settings=PACS_MOBILENETV2,
    seeds=(0, 1, 2),
    orders=(("erm", "adamean", "mixstyle", "efdmix"), ("erm", "adastd", "mixstyle", "efdmix")),
    contrasts=(("adastd", "adamean"), ("hm", "mixstyle"), ("hm", "efdmix"), ("efdmix", "efdmix-flow")),
)  # fmt: skip
