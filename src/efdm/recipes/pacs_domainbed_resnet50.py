"""PACS, DomainBed's protocol, ResNet-50, with DomainBed's default hyperparameters.

claim     EFDMix is better than ERM under DomainBed's protocol.
command   efdm dg run pacs_domainbed_resnet50 --data PACS --weights resnet50.safetensors -o runs/domainbed
time      not measured: torchvision's ImageNet weights of ResNet-50 were not available here
expected  published: EFDMix 87.9 (paper); ERM 86.7 with the oracle and 85.5 with training-domain validation (DomainBed)
runs      120 (4 methods x (4 domains + 6 pairs of domains) x 3 seeds)

The protocol sets Adam, 32 pictures of every training domain per batch, 5,001 steps and an evaluation every 300 steps. The
pairs of domains are needed only for leave-one-domain-out cross-validation; remove it from `selections` to save 72 runs.

The paper compares its 87.9 with 86.7, ERM's *oracle* number, so compare it only with the oracle table. Differences from
DomainBed: docs/protocols.md.
"""

from efdm.lab import PUBLISHED, Recipe

recipe = Recipe(
    protocol="domainbed",
    data="pacs",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow"],
    settings={
        "backbone": "resnet50.tv_in1k",
        "weights": "timm",
        "stages": ("layer1", "layer2"),  # as in the paper's leave-one-out runs; not stated for DomainBed
        "size": 224,
    },
    seeds=(0, 1, 2),  # DomainBed: three trials
    selections=("training-domain validation", "leave-one-domain-out cross-validation", "oracle"),
    picture_size=227,
    orders=(("erm", "efdmix"),),
    contrasts=(("mixstyle", "efdmix"), ("efdmix", "efdmix-flow")),
    published=PUBLISHED["pacs", "domainbed", "resnet50"],
    std="error",  # DomainBed: standard errors over trials
)
