"""PACS, leave one domain out, ResNet-18 with PReLU in place of ReLU: orders of statistics and tie rules without ties.

claim     equal values come from ReLU; with PReLU, histogram matching (hm) and the tie rules agree with efdmix.
command   efdm dg run pacs_prelu_resnet18 --data PACS --weights resnet18.safetensors -o runs/prelu18 --lanes 4
time      not measured
expected  no published numbers in the main paper
runs      180 (9 methods x 4 domains x 5 seeds)

The weights are those of the network with ReLU, and every PReLU starts with the slope 0.25 and learns it; ImageNet weights
for PReLU are not available. Compare rows within the table only. Everything else is as in pacs_order_study_resnet18.
"""

from efdm.lab import ORDERS, PACS_RESNET18, pacs_resnet

recipe = pacs_resnet(
    18,
    "leave-one-out",
    ["erm", "adamean", "adastd", "mixstyle", "hm", "efdmix", "efdmix-flow", "efdmix-random", "efdmix-neighbor"],
    settings={**PACS_RESNET18, "backbone": "resnet18_prelu"},
    orders=ORDERS,
    contrasts=(
        ("hm", "efdmix"), ("efdmix", "efdmix-flow"), ("efdmix", "efdmix-random"), ("efdmix", "efdmix-neighbor"),
    ),
    published=(),
    notes=("PReLU replaces ReLU after pretraining, with the initial slope 0.25.",),
)  # fmt: skip
