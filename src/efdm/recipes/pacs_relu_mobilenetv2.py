"""PACS, leave one domain out, MobileNetV2: mixing after a ReLU, as in a ResNet.

claim     none from the paper. Stages of MobileNetV2 end without an activation, those of ResNets with a ReLU. If this is why
          the two networks disagree about means alone (adamean), the rows here resemble those of pacs_order_study_resnet18.
command   efdm dg run pacs_relu_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/relu --lanes 4
time      not measured
expected  no published numbers for this network
runs      60 (5 methods x 4 domains x 3 seeds)

Features are mixed after the first ReLU6 behind each of the stages of pacs_leave_one_out_mobilenetv2, at the same resolution
and with six times as many channels. All other settings are unchanged; the rows of that recipe are the comparison.
"""

from efdm.lab import PACS_MOBILENETV2, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["adamean", "adastd", "mixstyle", "efdmix", "efdmix-flow"],
    settings={**PACS_MOBILENETV2, "stages": ("blocks.2.0.bn1", "blocks.3.0.bn1", "blocks.5.0.bn1")},
    seeds=(0, 1, 2),
    selections=("last",),
    orders=(("adamean", "mixstyle", "efdmix"), ("adastd", "mixstyle", "efdmix-flow")),
    contrasts=(("adastd", "adamean"), ("efdmix", "efdmix-flow")),
)
