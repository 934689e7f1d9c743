"""PACS, leave one domain out, ResNet-18, with the paper's settings.

claim     ERM < MixStyle < EFDMix, with random partners and with domain labels.
command   efdm dg run pacs_leave_one_out_resnet18 --data PACS --weights resnet18.safetensors -o runs/lodo18
time      not measured here, where ImageNet weights of ResNet-18 were not at hand
expected  the paper has 79.5 for ERM, 82.9 for MixStyle and 83.9 for EFDMix with domain labels, on average (the cells
          printed for the last have a mean of 83.8)
runs      180 (9 methods x 4 domains x 5 seeds)

Where the paper and its authors' code differ, both are here under names of their own:
- style gradient: the paper stops it (efdmix), the code lets it flow (efdmix-flow); the authors say elsewhere that the
  published numbers are of the code.
- partners of another domain: by label in the paper (efdmix-labels); in the code by the halves of a batch.
- cosine: the code steps the schedule of these runs only when an epoch has a certain length, about 79 times in 150 epochs on
  average, so the learning rate never comes near zero. Here it is done at every iteration; "authors" is the faithful one.
"""

from efdm.lab import PACS_PAPER, Recipe, pacs_lengths, published

# paper: 150 epochs of 128 = 2 domains x 64. An epoch of that sampler varies; on average they are about 5,100 iterations
LABELS = {"batch": 128, "domains_per_batch": 2, "iterations": 5100}

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods={
        "erm": {},
        "mixup": {},
        "mixstyle": {},
        "efdmix": {},
        "efdmix-flow": {},  # authors' code
        "mixstyle-labels": LABELS,
        "efdmix-labels": LABELS,
        "efdmix-labels-flow": LABELS,
        "efdmix-labels, authors' code": {**LABELS, "method": "efdmix-halves-flow", "schedule": "authors"},
    },
    settings={
        **PACS_PAPER,
        "backbone": "resnet18.tv_in1k",  # torchvision's weights, by timm's name
        "stages": ("layer1", "layer2", "layer3"),  # paper
    },
    columns=pacs_lengths("leave-one-out", epochs=50),  # paper
    picture_size=227,  # as the pictures come
    orders=(("erm", "mixstyle", "efdmix"), ("erm", "mixstyle-labels", "efdmix-labels")),
    contrasts=(
        ("efdmix", "efdmix-flow"),
        ("efdmix-labels", "efdmix-labels-flow"),
        ("efdmix-labels", "efdmix-labels, authors' code"),
    ),
    published=published("pacs", "leave-one-out", "resnet18"),
)  # fmt: skip
