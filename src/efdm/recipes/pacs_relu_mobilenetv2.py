"""PACS, leave one domain out, MobileNetV2: mixing after a ReLU, as in a ResNet.

claim     none from the paper. Stages of MobileNetV2 end without an activation, those of ResNets with a ReLU. If this is why
          the two networks disagree about means alone (adamean), the rows here resemble those of pacs_order_study_resnet18.
command   efdm dg run pacs_relu_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/relu --lanes 4
time      about 20 s a run on one H200, shared with another sweep
expected  no published numbers for this network. Measured (3 seeds): erm 77.3, adamean 80.0, adastd 77.9, mixstyle 79.8
runs      72 (6 methods x 4 domains x 3 seeds), of which 12 (erm) are those of pacs_leave_one_out_mobilenetv2 (--reuse)

Features are mixed after the first ReLU6 behind each of the stages of pacs_leave_one_out_mobilenetv2, at the same resolution
and with six times as many channels. All other settings are unchanged; compare the rows with those of that recipe.
"""

from efdm.lab import PACS_MOBILENETV2, Recipe

mixed = ["adamean", "adastd", "mixstyle", "efdmix", "efdmix-flow"]
recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods={"erm": {"stages": PACS_MOBILENETV2["stages"]}, **{method: {} for method in mixed}},  # erm mixes nothing
    settings={**PACS_MOBILENETV2, "stages": ("blocks.2.0.bn1", "blocks.3.0.bn1", "blocks.5.0.bn1")},
    seeds=(0, 1, 2),
    selections=("last",),
    orders=(("erm", "adamean", "mixstyle", "efdmix"), ("erm", "adastd", "mixstyle", "efdmix-flow")),
    contrasts=(("adastd", "adamean"), ("efdmix", "efdmix-flow")),
    std="error",
)
