"""Office-Home, leave one domain out, ResNet-18: an example for a folder of your own.

claim     none of the paper's: a recipe to copy. Any folder or zip that lies as domain/class/picture will do.
command   efdm dg run office_home_leave_one_out_resnet18 --data OfficeHome --weights resnet18.safetensors -o runs/office
time      not measured
expected  nothing published under these settings
runs      36 (3 methods x 4 domains x 3 seeds)

For pictures of your own, copy this file, change `data` to a name for them, and choose the number of iterations: 50 epochs
are 50 x pictures / batch. A tenth of every class and domain is held out for validation, reproducibly, by the names of files.
"""

from efdm.lab import Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="office_home",
    methods=["erm", "mixstyle", "efdmix"],
    settings={
        "backbone": "resnet18.tv_in1k",
        "weights": "timm",
        "stages": ("layer1", "layer2", "layer3"),
        "iterations": 8200,  # about 50 epochs: three of the domains have some 10,500 training pictures
        "batch": 64,
        "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine",
        "augmentation": "paper",
        "size": 224,
        "evaluate_every": 1000,
    },
    seeds=(0, 1, 2),
    picture_size=256,
    orders=(("erm", "mixstyle", "efdmix"),),
)  # fmt: skip
