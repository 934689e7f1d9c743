"""PACS, ResNet-50: learning rate and length, chosen for ERM on held-out pictures of the training domains.

claim     one learning rate and one number of iterations are suitable for all our recipes for ResNet-50.
command   efdm dg run pacs_grid_resnet50 --data PACS --weights resnet50_v1.safetensors -o runs/grid50 --lanes 4
time      about 5 and 9 s a run on one H200, shared with other work; a minute to read and compile
expected  400 iterations and 0.004: 96.2 % on held-out pictures, 96.3 % after 800 iterations
runs      24 (3 learning rates x 2 lengths x 4 domains x 1 seed)

pacs_grid_resnet18 explains how a combination is chosen. It chose its largest learning rate, so this grid has larger ones.
The runs are half as long, because a step of ResNet-50 takes longer. The runs of the chosen combination are those of ERM in
pacs_leave_one_out_resnet50.
"""

from efdm.lab import pacs_resnet

recipe = pacs_resnet(
    50,
    "leave-one-out",
    ["erm"],
    grid={"lr": (2e-3, 4e-3, 8e-3), "iterations": (400, 800)},
    seeds=(0,),
    scores=("training-domain validation",),
    published=(),
)
