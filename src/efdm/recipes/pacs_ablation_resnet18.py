"""PACS, leave one domain out, ResNet-18: where EFDMix is inserted, how strongly and how often it mixes.

claim     EFDMix works after several lower stages, with alpha = 0.1 and p = 0.5, and mixing is better than exchanging whole
          distributions (EFDM).
command   efdm dg run pacs_ablation_resnet18 --data PACS --weights resnet18.safetensors -o runs/ablation18 --lanes 4
time      about 6 s a run on one H200, after a minute to read and compile
expected  no published numbers in the main paper, which refers to its supplement. Measured: efdmix-flow 83.2; after layer1
          82.1, layer1-2 83.0, layer1-4 80.2; alpha 0.2 83.4, 0.3 83.3, 1 82.1; exchange 83.2; p 0.25 83.0, 0.75 83.3,
          1 82.2
runs      144 (12 methods x 4 domains x 3 seeds)

Every row changes one setting of efdmix-flow: layer1 to layer3, alpha 0.1, p 0.5. "exchange" keeps nothing of a sample's own
distribution (alpha=None), which is EFDM. All other settings, and the runs of erm and efdmix-flow, are those of
pacs_leave_one_out_resnet18; --reuse with its folder copies their records.
"""

from typing import Any

from efdm.lab import pacs_resnet

FLOW: dict[str, Any] = {"method": "efdmix-flow"}
LAYERS = ("layer1", "layer2", "layer3", "layer4")
rows = {
    "erm": {},
    "efdmix-flow": {},
    "after layer1": {**FLOW, "stages": LAYERS[:1]},
    "after layer1-2": {**FLOW, "stages": LAYERS[:2]},
    "after layer1-4": {**FLOW, "stages": LAYERS},
    **{f"alpha {alpha}": {**FLOW, "options": {"alpha": alpha}} for alpha in (0.2, 0.3, 1.0)},
    "exchange": {**FLOW, "options": {"alpha": None}},
    **{f"p {p}": {**FLOW, "options": {"p": p}} for p in (0.25, 0.75, 1.0)},
}
recipe = pacs_resnet(
    18,
    "leave-one-out",
    rows,
    seeds=(0, 1, 2),
    contrasts=tuple(("efdmix-flow", row) for row in rows if row not in ("erm", "efdmix-flow")),
)
