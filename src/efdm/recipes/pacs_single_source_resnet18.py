"""PACS, single source, ResNet-18, with the paper's settings.

claim     ERM < MixStyle < EFDMix when there is one training domain, with random partners.
command   efdm dg run pacs_single_source_resnet18 --data PACS --weights resnet18.safetensors -o runs/single18
time      not measured here, where ImageNet weights of ResNet-18 were not at hand
expected  the paper has 46.6 for ERM, 51.7 for MixStyle and 54.4 for EFDMix, on average
runs      80 (4 methods x 4 domains x 5 seeds)

A column is the domain that was trained on. The paper's accuracy is pooled over the pictures of the other three, so that
sketches, the largest domain, count most; the mean of the domains' accuracies is a second table. The paper stops the style
gradient (efdmix), its authors' code lets it flow (efdmix-flow).
"""

from efdm.lab import Recipe, published

recipe = Recipe(
    protocol="single-source",
    data="pacs",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow"],
    settings={
        "backbone": "resnet18.tv_in1k",  # torchvision's weights, by timm's name
        "weights": "timm",
        "stages": ("layer1", "layer2", "layer3"),  # paper
        "batch": 64,  # paper
        "optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine",  # paper
        "augmentation": "paper",
        "size": 224,
        "evaluate_every": 500,
    },
    # paper: 50 epochs of 64, the last batch of an epoch dropped; an epoch is as long as the domain's training list
    columns={
        "art_painting": {"iterations": 50 * 28},
        "cartoon": {"iterations": 50 * 32},
        "photo": {"iterations": 50 * 23},
        "sketch": {"iterations": 50 * 55},
    },
    picture_size=227,  # as the pictures come
    orders=(("erm", "mixstyle", "efdmix"),),
    contrasts=(("efdmix", "efdmix-flow"),),
    published=published("pacs", "single-source", "resnet18"),
)  # fmt: skip
