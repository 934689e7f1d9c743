"""PACS, ResNet-18: learning rate and length, chosen for ERM on held-out pictures of the training domains.

claim     one learning rate and one number of iterations are suitable for all our recipes for ResNet-18.
command   efdm dg run pacs_grid_resnet18 --data PACS --weights resnet18.safetensors -o runs/grid18 --lanes 4
time      about 8 s a run on one H200, after 2 minutes to read and compile
expected  1,600 iterations and 0.004, the largest values of the grid: 95.9 % on held-out pictures
runs      24 (3 learning rates x 2 lengths x 4 domains x 1 seed)

Only ERM is trained, so the choice favours no other method. The number in a column is the accuracy on held-out pictures of
the *other* domains, which were trained on. One combination is chosen for all columns by their average: among those within
half a percentage point of the best, the fewest iterations, and at that length the best learning rate. The runs of the chosen
combination are those of ERM in pacs_leave_one_out_resnet18.
"""

from efdm.lab import pacs_resnet

recipe = pacs_resnet(
    18,
    "leave-one-out",
    ["erm"],
    grid={"lr": (1e-3, 2e-3, 4e-3), "iterations": (800, 1600)},
    seeds=(0,),
    scores=("training-domain validation",),
    published=(),
)
