"""PACS, MobileNetV2: the learning rate, chosen for ERM on held-out pictures of the training domains.

claim     one learning rate is suitable for all our recipes for MobileNetV2.
command   efdm dg run pacs_rate_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/rate --lanes 4
time      2.3 minutes of training steps in four lanes on one H200, without reading and compiling
expected  the smallest learning rate within half a percentage point of the highest validation accuracy
runs      12 (3 learning rates x 4 domains x 1 seed)

pacs_grid_resnet18 explains the columns. One rate is chosen for all columns by their average, so held-out pictures of a
domain have a small influence on the rate used when it is the test domain. (Column by column, seed 0 would choose 0.003,
0.001, 0.01 and 0.003.) The number of iterations was not tuned. The runs at the chosen rate are those of ERM in
pacs_leave_one_out_mobilenetv2.
"""

from efdm.lab import PACS_MOBILENETV2, Recipe

recipe = Recipe(
    protocol="leave-one-out",
    data="pacs",
    methods=["erm"],
    settings=PACS_MOBILENETV2,
    grid={"lr": (1e-3, 3e-3, 1e-2)},
    seeds=(0,),
    selections=("last",),
    scores=("training-domain validation",),
)
