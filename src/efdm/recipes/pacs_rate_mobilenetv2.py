"""PACS, MobileNetV2: the learning rate and the length of training, chosen for ERM without looking at a test domain.

claim     one learning rate and one length serve all our recipes for MobileNetV2.
command   efdm dg run pacs_rate_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/rate --lanes 4
time      8 to 30 s a training on one H200
expected  the row with the highest accuracy on held-out pictures of the training domains
runs      36 (3 learning rates x 3 lengths x 4 domains x 1 seed)

Only ERM is trained, so that no other method has a say in it. The number in a column is the accuracy on held-out pictures of
the domains *other* than that one.
"""

from efdm.lab import Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["erm"],
    settings={
        "backbone": "mobilenetv2_100",
        "weights": "timm",
        "stages": ("blocks.1", "blocks.2", "blocks.4"),
        "batch": 64,
        "optimizer": "sgd", "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine",
        "augmentation": "paper",
        "size": 224,
    },
    grid={"lr": (1e-3, 3e-3, 1e-2), "iterations": (800, 1600, 3200)},
    seeds=(0,),
    selections=("last",),
    scores=("training-domain validation",),
)  # fmt: skip
