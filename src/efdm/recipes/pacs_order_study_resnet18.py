"""PACS, leave one domain out, ResNet-18: which orders of feature statistics matter.

claim     means (adamean) and standard deviations (adastd) help, means slightly more; both together (mixstyle, that is AdaIN)
          help more than either, by more than one point; all orders (efdmix) help most; histogram matching (hm), which merges
          ties, is worse than efdmix and mixstyle.
command   efdm dg run pacs_order_study_resnet18 --data PACS --weights resnet18.safetensors -o runs/orders18 --lanes 4
time      not measured
expected  the paper shows its order in a figure without numbers, for ResNet-50
runs      160 (8 methods x 4 domains x 5 seeds)

All other settings and half of the runs are those of pacs_leave_one_out_resnet18: copy its records.jsonl into the folder
first, and these runs are not repeated. In the authors' code only EFDMix lets the gradient flow to the style (efdmix-flow);
mixstyle-flow separates the effect of the gradient from that of exact matching.
"""

from efdm.lab import pacs_resnet

recipe = pacs_resnet(
    18,
    "leave-one-out",
    ["erm", "adamean", "adastd", "mixstyle", "mixstyle-flow", "hm", "efdmix", "efdmix-flow"],
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
    ),
)
