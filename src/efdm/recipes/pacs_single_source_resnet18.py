"""PACS, single source, ResNet-18, a short schedule.

claim     ERM < MixStyle < EFDMix with one training domain and random partners. Ours: distribution noise is better than ERM,
          EFDMix, DSU and CrossNorm.
command   efdm dg run pacs_single_source_resnet18 --data PACS --weights resnet18.safetensors -o runs/one18 --lanes 4
time      about 7 s a run on one H200, after a minute to read and compile
expected  published averages: ERM 46.6, MixStyle 51.7, EFDMix 54.4. Measured: erm 48.7, mixstyle 56.0, mixstyle-flow
          56.5, efdmix 55.8, efdmix-flow 57.2, dsu 54.0, crossnorm 57.9, distribution-noise 58.9
runs      160 (8 methods x 4 domains x 5 seeds)

All settings except the domains are those of pacs_leave_one_out_resnet18, including the number of iterations: 30 to 70 epochs
of one domain. Columns are training domains. The paper pools the pictures of the three test domains, so sketch, the
largest domain, weighs most; a second table averages the domains' accuracies.
"""

from efdm.lab import NOISE_CONTRASTS, ORDERS, pacs_resnet

recipe = pacs_resnet(
    18,
    "single-source",
    ["erm", "mixstyle", "mixstyle-flow", "efdmix", "efdmix-flow", "dsu", "crossnorm", "distribution-noise"],
    orders=ORDERS,
    contrasts=(("efdmix", "efdmix-flow"), ("mixstyle-flow", "efdmix-flow")),
    separate_contrasts=NOISE_CONTRASTS,
)
