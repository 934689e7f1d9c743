"""PACS, DomainBed's protocol, ResNet-18, random hyperparameters, a short schedule.

claim     EFDMix is better than ERM under DomainBed's protocol.
command   efdm dg run pacs_domainbed_resnet18 --data PACS --weights resnet18.safetensors -o runs/domainbed18 --lanes 4
time      about 3 s a run on one H200, after compiling for each of ten batch sizes
expected  published for ResNet-50: EFDMix 87.9 (paper); ERM 86.7 with the oracle and 85.5 with training-domain validation
          (DomainBed). Measured, oracle: erm 79.6, coral 80.9, mixstyle 82.3, efdmix-flow 82.2; training-domain validation:
          79.0, 79.9, 82.0, 82.0
runs      360 (4 methods x 3 draws x (4 domains + 6 pairs of domains) x 3 seeds)

The protocol sets Adam and equal parts of all training domains in a batch. DomainBed has 20 draws of hyperparameters and 3
seeds, 5,001 steps and ResNet-50; this recipe has 3 draws (one with the defaults), 3 seeds and 600 steps, evaluated twice:
15 % of its runs, each with 12 % of its steps. The pairs of domains serve leave-one-domain-out cross-validation only.
DomainBed keeps the statistics of batch normalization; those of our weights are not ImageNet's, so they are trained here.
Other differences: docs/protocols.md.
"""

from efdm.lab import PACS_RESNET18, pacs_resnet

recipe = pacs_resnet(
    18,
    "domainbed",
    {"erm": {}, "coral": {}, "mixstyle": {}, "efdmix-flow": {}},
    settings={
        **{name: PACS_RESNET18[name] for name in ("backbone", "weights", "stages", "size")},
        "iterations": 600,
        "evaluate_every": 300,
        "batchnorm": "train",
    },
    draws=3,
    seeds=(0, 1, 2),  # DomainBed: three trials
    selections=("training-domain validation", "leave-one-domain-out cross-validation", "oracle"),
    orders=(("erm", "efdmix-flow"),),
    contrasts=(("mixstyle", "efdmix-flow"), ("coral", "efdmix-flow")),
    notes=(
        "Hyperparameters are drawn from DomainBed's distributions, 3 times for every seed, and the first draw has the "
        "defaults; DomainBed draws 20 times and trains 5,001 steps.",
    ),
)
