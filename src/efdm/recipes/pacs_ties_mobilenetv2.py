"""PACS, leave one domain out, MobileNetV2: does the order among equal values matter?

claim     the rules for ties give similar accuracies, so the fastest will do.
command   efdm dg run pacs_ties_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/ties --lanes 4
time      on one H200: 7 minutes of steps in four lanes, by the records; reading and compiling not counted
expected  no difference that three seeds can tell: 80.2, 80.6 and 80.3; the paper shows a figure without numbers
runs      36 (3 methods x 4 domains x 3 seeds)

efdmix leaves the order of equal values to the kernel ("fast"). Our kernels put them in the order of their positions, which
is the rule "stable": efdmix-stable would be the same row, bit for bit, and is left out.

Everything else is as in pacs_leave_one_out_mobilenetv2, and a third of the trainings are the same ones: put a copy of its
records.jsonl into the folder first, and they are not repeated.
"""

from efdm.lab import PACS_MOBILENETV2, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["efdmix", "efdmix-random", "efdmix-neighbor"],
    settings=PACS_MOBILENETV2,
    seeds=(0, 1, 2),
    contrasts=(("efdmix", "efdmix-random"), ("efdmix", "efdmix-neighbor")),
    notes=("efdmix-stable would be the row of efdmix, bit for bit: our kernels put equal values in order of position.",),
)  # fmt: skip
