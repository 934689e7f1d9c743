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

from efdm.lab import PACS_PAPER, Recipe, pacs_lengths, published

recipe = Recipe(
    protocol="single-source",
    data="pacs",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow"],
    settings={
        **PACS_PAPER,
        "backbone": "resnet18.tv_in1k",  # torchvision's weights, by timm's name
        "stages": ("layer1", "layer2", "layer3"),  # paper
    },
    columns=pacs_lengths("single-source", epochs=50),  # paper
    picture_size=227,  # as the pictures come
    orders=(("erm", "mixstyle", "efdmix"),),
    contrasts=(("efdmix", "efdmix-flow"),),
    published=published("pacs", "single-source", "resnet18"),
)  # fmt: skip
