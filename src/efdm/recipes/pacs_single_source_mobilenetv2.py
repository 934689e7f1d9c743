"""PACS, single source, MobileNetV2, a short schedule.

claim     the paper's order ERM < MixStyle < EFDMix with one training domain and a small network. Ours: distribution
          noise is better than ERM, EFDMix, DSU and CrossNorm.
command   efdm dg run pacs_single_source_mobilenetv2 --data PACS --weights mobilenetv2_100.safetensors -o runs/one --lanes 4
time      --seeds 3 on one H200: 9 minutes of training steps in four lanes, without reading and compiling
expected  3 seeds, pooled: ERM 45.4, MixStyle 52.3, EFDMix 53.4; with style gradient EFDMix 55.0
runs      140 (7 methods x 4 domains x 5 seeds)

All settings except the domains are those of pacs_leave_one_out_mobilenetv2. Columns are training domains. The first table
pools the pictures of the three test domains, the second averages the domains' accuracies.
"""

from efdm.lab import NOISE_CONTRASTS, ORDERS, PACS_MOBILENETV2, PUBLISHED, Recipe

recipe = Recipe(
    protocol="single-source",
    data="pacs",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow", "dsu", "crossnorm", "distribution-noise"],
    settings=PACS_MOBILENETV2,
    orders=ORDERS,
    contrasts=(("efdmix", "efdmix-flow"),),
    separate_contrasts=NOISE_CONTRASTS,
    published=PUBLISHED["pacs", "single-source", "resnet18"],
)
