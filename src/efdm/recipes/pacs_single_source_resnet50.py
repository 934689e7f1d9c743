"""PACS, single source, ResNet-50, with the paper's settings.

claim     ERM < MixStyle < EFDMix with one training domain and random partners.
command   efdm dg run pacs_single_source_resnet50 --data PACS --weights resnet50.safetensors -o runs/single50
time      not measured: no ImageNet weights of ResNet-50 were available here
expected  published averages: ERM 50.5, MixStyle 58.6, EFDMix 61.2
runs      80 (4 methods x 4 domains x 5 seeds)

Tables and rows are those of pacs_single_source_resnet18.
"""

from efdm.lab import load_recipe, pacs_resnet

small = load_recipe("pacs_single_source_resnet18")
recipe = pacs_resnet(50, "single-source", small.rows, orders=small.orders, contrasts=small.contrasts)
