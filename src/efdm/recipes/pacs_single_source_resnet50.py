"""PACS, single source, ResNet-50, a short schedule.

claim     ERM < EFDMix with one training domain and random partners.
command   efdm dg run pacs_single_source_resnet50 --data PACS --weights resnet50_v1.safetensors -o runs/one50 --lanes 4
time      about 5 s a run on one H200, after a minute to read and compile
expected  published averages: ERM 50.5, EFDMix 61.2. Measured: erm 41.7, efdmix-flow 50.8
runs      24 (2 methods x 4 domains x 3 seeds)

Layers act after layer1, layer2 and layer3. All other settings except the domains are those of pacs_leave_one_out_resnet50,
the tables those of pacs_single_source_resnet18.
"""

from efdm.lab import pacs_resnet

recipe = pacs_resnet(50, "single-source", ["erm", "efdmix-flow"], seeds=(0, 1, 2), orders=(("erm", "efdmix-flow"),))
