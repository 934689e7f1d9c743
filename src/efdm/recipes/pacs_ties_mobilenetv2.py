"""PACS, leave one domain out, MobileNetV2: does the order among equal values matter?

claim     the tie rules give similar accuracies, so the fastest can be used.
command   efdm dg run pacs_ties_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/ties --lanes 4
time      on one H200: 7 minutes of training steps in four lanes, without reading and compiling
expected  80.2, 80.6 and 80.3, no significant difference with three seeds; the paper shows a figure without numbers
runs      36 (3 methods x 4 domains x 3 seeds)

All other settings and a third of the runs are those of pacs_leave_one_out_mobilenetv2; --reuse with its folder copies their
records.
"""

from efdm.lab import PACS_MOBILENETV2, STABLE, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["efdmix", "efdmix-random", "efdmix-neighbor"],
    settings=PACS_MOBILENETV2,
    seeds=(0, 1, 2),
    contrasts=(("efdmix", "efdmix-random"), ("efdmix", "efdmix-neighbor")),
    notes=(STABLE,),
)
