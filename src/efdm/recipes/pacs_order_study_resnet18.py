"""PACS, leave one domain out, ResNet-18: which orders of feature statistics matter, and whether the tie rule does.

claim     means (adamean) and standard deviations (adastd) help, means slightly more; both together (mixstyle, that is AdaIN)
          help more than either, by more than one point; all orders (efdmix) help most; histogram matching (hm), which merges
          ties, is worse than efdmix and mixstyle; the tie rules give similar accuracies.
command   efdm dg run pacs_order_study_resnet18 --data PACS --weights resnet18.safetensors -o runs/orders18 --lanes 4
time      about 6 s a run on one H200 (hm 14 s, efdmix-neighbor 11 s, efdmix-random 8 s), after a minute to read and compile
expected  the paper shows both studies in figures without numbers, the first for ResNet-50. Measured: erm 79.9, adamean 81.2,
          adastd 80.3, mixstyle 82.3, hm 82.1, efdmix 81.7, efdmix-flow 83.2, efdmix-random 81.5, efdmix-neighbor 81.5,
          mixstyle-flow 83.3
runs      200 (10 methods x 4 domains x 5 seeds)

All other settings and 100 of the runs are those of pacs_leave_one_out_resnet18; --reuse with its folder copies their
records. In the authors' code only EFDMix lets the gradient flow to the style (efdmix-flow); mixstyle-flow separates the
effect of the gradient from that of exact matching. The stages of ResNet-18 end with a ReLU, so channels have many zeros.
"""

from efdm.lab import STABLE, pacs_resnet

recipe = pacs_resnet(
    18,
    "leave-one-out",
    [
        "erm", "adamean", "adastd", "mixstyle", "hm", "efdmix", "efdmix-flow", "efdmix-random", "efdmix-neighbor",
        "mixstyle-flow",
    ],
    orders=(
        ("erm", "adamean", "mixstyle", "efdmix"),
        ("erm", "adastd", "mixstyle", "efdmix"),
        ("hm", "mixstyle"),
        ("hm", "efdmix"),
    ),
    contrasts=(
        ("adastd", "adamean"),
        ("mixstyle", "mixstyle-flow"),  # the gradient without exact matching
        ("efdmix", "efdmix-flow"),
        ("mixstyle-flow", "efdmix-flow"),  # exact matching with the gradient
        ("efdmix", "efdmix-random"),
        ("efdmix", "efdmix-neighbor"),
    ),
    notes=(STABLE,),
)  # fmt: skip
