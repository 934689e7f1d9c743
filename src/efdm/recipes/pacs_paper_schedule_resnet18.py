"""PACS, leave one domain out, ResNet-18, with the paper's schedule: 50 epochs, learning rate 0.001.

claim     ERM < MixStyle < EFDMix with random partners.
command   efdm dg run pacs_paper_schedule_resnet18 --data PACS --weights resnet18.safetensors -o runs/paper18 --lanes 4
time      16 to 42 s a run on one H200, depending on what else ran there, after a minute to read and compile
expected  published averages: ERM 79.5, MixStyle 82.6, EFDMix 83.4. Measured (5 seeds): erm 78.3, mixstyle 82.6,
          efdmix-flow 82.8; efdmix was not run
runs      80 (4 methods x 4 domains x 5 seeds)

docs/protocols.md lists the differences from the paper.
"""

from efdm.lab import ORDERS, pacs_resnet

recipe = pacs_resnet(
    18,
    "leave-one-out",
    ["erm", "mixstyle", "efdmix", "efdmix-flow"],
    schedule="paper",
    orders=ORDERS,
    contrasts=(("efdmix", "efdmix-flow"),),
)
