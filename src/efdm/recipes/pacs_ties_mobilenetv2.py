"""PACS, leave one domain out, MobileNetV2: does the order among equal values matter?

claim     the rules for ties give similar accuracies, so the fastest will do.
command   efdm dg run pacs_ties_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/ties --lanes 4
time      about 15 s a training on one H200; longer for efdmix-neighbor
expected  no difference that three seeds can tell; the paper shows a figure without numbers
runs      36 (3 methods x 4 domains x 3 seeds)

efdmix leaves the order of equal values to the kernel ("fast"). Our kernels put them in the order of their positions, which
is the rule "stable": efdmix-stable would be the same row, bit for bit, and is left out.

Everything else is as in pacs_leave_one_out_mobilenetv2, and a third of the trainings are the same ones: put a copy of its
records.jsonl into the folder first, and they are not repeated.
"""

from efdm.lab import Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["efdmix", "efdmix-random", "efdmix-neighbor"],
    settings={
        "backbone": "mobilenetv2_100",
        "weights": "timm",
        "stages": ("blocks.1", "blocks.2", "blocks.4"),  # ends of strides 4, 8, 16, as layer1, 2, 3 of a ResNet
        "iterations": 1600,
        "batch": 64,
        "optimizer": "sgd", "lr": 3e-3, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine",
        "augmentation": "paper",
        "size": 224,
        "evaluate_every": 400,
    },
    seeds=(0, 1, 2),
    contrasts=(("efdmix", "efdmix-random"), ("efdmix", "efdmix-neighbor")),
)  # fmt: skip
