"""PACS, single source, ResNet-18, with the paper's settings.

claim     ERM < MixStyle < EFDMix with one training domain and random partners.
command   efdm dg run pacs_single_source_resnet18 --data PACS --weights resnet18.safetensors -o runs/single18
time      not measured: no ImageNet weights of ResNet-18 were available here
expected  published averages: ERM 46.6, MixStyle 51.7, EFDMix 54.4
runs      80 (4 methods x 4 domains x 5 seeds)

Columns are training domains. The paper pools the pictures of the three test domains, so sketch, the largest domain, weighs
most; a second table averages the domains' accuracies. The paper stops the style gradient (efdmix), its authors' code does
not (efdmix-flow).
"""

from efdm.lab import pacs_resnet

recipe = pacs_resnet(
    18,
    "single-source",
    {"erm": {}, "mixstyle": {}, "efdmix": {}, "efdmix-flow": {}},
    orders=(("erm", "mixstyle", "efdmix"),),
    contrasts=(("efdmix", "efdmix-flow"),),
)
