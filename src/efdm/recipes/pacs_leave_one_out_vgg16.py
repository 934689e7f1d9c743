"""PACS, leave one domain out, VGG-16, a short schedule.

claim     the paper's order ERM < MixStyle < EFDMix, asked of a network without batch normalisation.
command   efdm dg run pacs_leave_one_out_vgg16 --data PACS --weights vgg16_features.fp16.safetensors -o runs/vgg --lanes 2
time      not measured yet
expected  the paper's ResNet-18 has 79.5, 82.6 and 83.4 on average; of this network nothing was known before
runs      48 (4 methods x 4 domains x 3 seeds)

"vgg16-gap" is VGG-16's convolutions, the means of the last features and one linear layer: its own large classifier is left
out. Stages: strides 4, 8 and 16, as layer1, 2, 3 of a ResNet, are the second, third and fourth, pooling included. Without
batch normalisation it wants a smaller learning rate.
"""

from efdm.lab import PACS_SHORT, Recipe, published

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow"],
    settings={
        **PACS_SHORT,
        "backbone": "vgg16-gap",
        "weights": "vgg16_features.fp16.safetensors",  # torchvision's convolutions
        "stages": ("stage2", "stage3", "stage4"),
    },
    seeds=(0, 1, 2),
    orders=(("erm", "mixstyle", "efdmix"),),
    contrasts=(("efdmix", "efdmix-flow"),),
    published=published("pacs", "leave-one-out", "resnet18"),
)  # fmt: skip
