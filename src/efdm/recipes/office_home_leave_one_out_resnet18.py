"""Office-Home, leave one domain out, ResNet-18: a template for your own data.

claim     none from the paper. Any folder or zip with the layout domain/class/picture works.
command   efdm dg run office_home_leave_one_out_resnet18 --data OfficeHome --weights resnet18.safetensors -o runs/office
time      not measured
expected  no published numbers for these settings
runs      36 (3 methods x 4 domains x 3 seeds)

For your own data, copy this file, set `data` to a name of your choice, and choose the number of iterations: 50 epochs are 50
x pictures / batch. A tenth of every class and domain is held out for validation; hashes of the file names determine which.
"""

from efdm.lab import PACS_PAPER, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="office_home",
    methods=["erm", "mixstyle", "efdmix"],
    settings={
        **PACS_PAPER,
        "backbone": "resnet18.tv_in1k",
        "stages": ("layer1", "layer2", "layer3"),
        "iterations": 8200,  # about 50 epochs: three domains have about 10,500 training pictures
        "evaluate_every": 1000,
    },
    seeds=(0, 1, 2),
    picture_size=256,
    orders=(("erm", "mixstyle", "efdmix"),),
)
