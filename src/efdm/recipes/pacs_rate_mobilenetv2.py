"""PACS, MobileNetV2: the learning rate, chosen for ERM on held-out pictures of training domains.

claim     one learning rate serves all our recipes for MobileNetV2.
command   efdm dg run pacs_rate_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/rate --lanes 4
time      2.3 minutes of steps in four lanes on one H200, by the records; reading and compiling not counted
expected  the row with the highest accuracy on held-out pictures of the training domains, or one that is as good
runs      12 (3 learning rates x 4 domains x 1 seed)

Only ERM is trained, so that no other method has a say in it. The number in a column is the accuracy on held-out pictures of
the domains *other* than that one. One rate is taken for all columns, by their average: so held-out pictures of a domain have
a say in the rate that is used when it is the test domain, though a small one. (Column by column, seed 0 alone would take
0.003, 0.001, 0.01 and 0.003.) These accuracies lie close together, near their ceiling: rates whose averages are within
half a percent point of the best count as equal, and the smallest of them is chosen. The length was not searched for.
The runs at the chosen rate are those of ERM in pacs_leave_one_out_mobilenetv2.
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
)  # fmt: skip
