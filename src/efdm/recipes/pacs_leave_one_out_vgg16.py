"""PACS, leave one domain out, VGG-16, a short schedule.

claim     the paper's order ERM < MixStyle < EFDMix with a network without batch normalization.
command   efdm dg run pacs_leave_one_out_vgg16 --data PACS --weights vgg16_features.fp16.safetensors -o runs/vgg --lanes 2
time      not measured
expected  no published numbers for this network; the paper's ResNet-18 averages are 79.5, 82.6 and 83.4
runs      48 (4 methods x 4 domains x 3 seeds)

"vgg16-gap" is the convolutional part of VGG-16 with global average pooling and one linear layer. The second, third and
fourth stages, pooling included, end strides 4, 8 and 16, like layer1, 2, 3 of a ResNet. Without batch normalization the
network needs a smaller learning rate.
"""

from efdm.lab import PACS_SHORT, Recipe, published_lines

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
    published=published_lines("pacs", "leave-one-out", "resnet18"),
)
