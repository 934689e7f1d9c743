"""PACS, leave one domain out, ResNet-18, a short schedule: the paper's main table with its own network.

claim     ERM < MixStyle < EFDMix, with random partners and with domain labels, and EFDMix is better than Mixup, Manifold
          Mixup, CutMix, Cutout and DropBlock. Ours: distribution noise is better than ERM, EFDMix, DSU and CrossNorm.
command   efdm dg run pacs_leave_one_out_resnet18 --data PACS --weights resnet18.safetensors -o runs/lodo18 --lanes 4
time      about 7 s a run on one H200, after 2 minutes to read and compile
expected  published averages: ERM 79.5; MixStyle 82.6 and EFDMix 83.4; with domain labels MixStyle 82.9 and EFDMix 83.9.
          Measured: erm 79.9, mixstyle 82.3, mixstyle-flow 83.3, mixstyle-labels 82.2, efdmix 81.7, efdmix-flow 83.2,
          efdmix-labels 81.6, efdmix-labels-flow 83.3, dsu 82.2, crossnorm 83.1, mixup 77.8, manifold-mixup 76.0,
          cutmix 75.8, cutout 77.5, dropblock 79.9, distribution-noise 84.2
runs      320 (16 methods x 4 domains x 5 seeds)

All methods use the learning rate and the number of iterations that pacs_grid_resnet18 chose for ERM on held-out pictures of
the training domains. (pacs_paper_schedule_resnet18 has the paper's.) Feature methods act after layer1, layer2 and layer3.
The paper's text stops the gradient to the style (efdmix), its authors' code does not (efdmix-flow).
pacs_order_study_resnet18 compares mixstyle-flow, MixStyle with the same gradient, with both; its runs are the same.
"""

from efdm.lab import LABEL_ORDERS, NOISE_CONTRASTS, ORDERS, pacs_resnet

REGULARIZERS = ("mixup", "manifold-mixup", "cutmix", "cutout", "dropblock")

recipe = pacs_resnet(
    18,
    "leave-one-out",
    [
        "erm", "mixstyle", "mixstyle-flow", "mixstyle-labels", "efdmix", "efdmix-flow", "efdmix-labels",
        "efdmix-labels-flow", "dsu", "crossnorm", *REGULARIZERS, "distribution-noise",
    ],
    orders=(*ORDERS, *LABEL_ORDERS),
    contrasts=(
        ("efdmix", "efdmix-flow"),
        ("efdmix-labels", "efdmix-labels-flow"),
        *((name, "efdmix-flow") for name in REGULARIZERS),
    ),
    separate_contrasts=NOISE_CONTRASTS,
    notes=(
        "With labels, batches hold 2 domains x 32 pictures and runs have as many iterations as the others; the paper uses "
        "2 x 64 and 150 epochs.",
        "All feature methods act after the same three stages; DSU and CrossNorm were published with more stages, CrossNorm "
        "also with crops.",
    ),
)  # fmt: skip
