"""PACS, leave one domain out, MobileNetV2, a short schedule: twelve methods.

claim     the paper's order ERM < MixStyle < EFDMix with a small network, and the effect of the style gradient. Ours:
          distribution noise is better than ERM, EFDMix, DSU and CrossNorm.
command   efdm dg run pacs_leave_one_out_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/lodo --lanes 4
time      --seeds 3 on one H200: 27 minutes of training steps in four lanes, without reading and compiling
expected  3 seeds: ERM 77.3, MixStyle 80.9, EFDMix 80.2; with style gradient MixStyle 81.3, EFDMix 81.8
runs      240 (12 methods x 4 domains x 5 seeds)

All methods use the same learning rate, which pacs_rate_mobilenetv2 chose for ERM on held-out pictures of the training
domains. Methods that use domain labels are trained with batches of 2 domains x 32 pictures, the others with 64 pictures of
all domains, for the same number of iterations. (The paper uses 2 x 64 with labels, and its own schedule.)

Stages: the paper mixes after layer1, layer2 and layer3 of ResNet-18, the ends of strides 4, 8 and 16, which are blocks.1,
blocks.2 and blocks.4 of timm's MobileNetV2. All feature methods act there.
"""

from efdm.lab import LABEL_ORDERS, NOISE_CONTRASTS, ORDERS, PACS_MOBILENETV2, PUBLISHED, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=[
        "erm", "mixstyle", "mixstyle-flow", "mixstyle-labels", "efdmix", "efdmix-flow", "efdmix-labels",
        "efdmix-labels-flow", "dsu", "crossnorm", "mixup", "distribution-noise",
    ],
    settings=PACS_MOBILENETV2,
    orders=(*ORDERS, *LABEL_ORDERS),
    contrasts=(
        ("efdmix", "efdmix-flow"),
        ("efdmix-labels", "efdmix-labels-flow"),
        ("mixstyle", "mixstyle-flow"),  # the gradient without exact matching
        ("mixstyle-flow", "efdmix-flow"),  # exact matching with the gradient
    ),
    separate_contrasts=NOISE_CONTRASTS,
    published=PUBLISHED["pacs", "leave-one-out", "resnet18"],
    notes=(
        "All feature methods act after the same three stages; DSU and CrossNorm were published with more stages, CrossNorm "
        "also with crops.",
    ),
)  # fmt: skip
