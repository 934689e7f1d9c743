"""PACS, leave one domain out, MobileNetV2: which orders of feature statistics matter.

claim     means (adamean) and standard deviations (adastd) help, both together (mixstyle, which is AdaIN) help more, all
          orders (efdmix) help most; histogram matching (hm), which merges ties, is worse than efdmix.
command   efdm dg run pacs_order_study_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/orders --lanes 4
time      on one H200: 17 minutes of training steps in four lanes, without reading and compiling
expected  ERM 77.3, AdaStd 78.3, EFDMix 80.2, HM 80.4, MixStyle 80.9, AdaMean 81.1, EFDMix with style gradient 81.8. The
          paper shows its order in a figure without numbers, for ResNet-50: AdaIN more than 1 above AdaMean and AdaStd
runs      84 (7 methods x 4 domains x 3 seeds)

All other settings and most runs are those of pacs_leave_one_out_mobilenetv2; --reuse with its folder copies their records.
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
)
