"""PACS, leave one domain out, ResNet-18 with PReLU in place of ReLU: orders of statistics and tie rules with fewer ties.

claim     equal values come from ReLU; with PReLU, histogram matching (hm) and the tie rules agree with efdmix.
command   efdm dg run pacs_prelu_resnet18 --data PACS --weights resnet18.safetensors -o runs/prelu18 --lanes 4
time      about 9 s a run on one H200 (hm 15 s), longer beside other runs, after a minute to read and compile
expected  no published numbers in the main paper. Measured (5 seeds): erm 78.9, adamean 80.0, adastd 79.7, mixstyle 78.5,
          hm 79.1, efdmix 79.3, efdmix-flow 81.5, efdmix-random 79.1, efdmix-neighbor 79.2
runs      180 (9 methods x 4 domains x 5 seeds)

The weights are those of the network with ReLU, and every PReLU starts with the slope 0.25 and learns it; ImageNet weights
for PReLU are not available. Compare rows within the table only. Everything else is as in pacs_order_study_resnet18.
"""

from dataclasses import replace

from efdm.lab import load_recipe

study = load_recipe("pacs_order_study_resnet18")
rows = [row for row in study.rows if row != "mixstyle-flow"]
recipe = replace(
    study,
    name="",
    methods=rows,
    settings={**study.settings, "backbone": "resnet18_prelu"},
    contrasts=tuple(pair for pair in study.contrasts if set(pair) <= set(rows)),
    published=(),
    notes=(*study.notes, "PReLU replaces ReLU after pretraining, with the initial slope 0.25."),
)
