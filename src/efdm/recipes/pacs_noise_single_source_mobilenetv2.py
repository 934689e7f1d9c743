"""PACS, single source, MobileNetV2, a short schedule: noise on whole distributions.

claim     Gaussian noise on whole distributions is better than EFDMix, DSU (noise on means and standard deviations) and
          CrossNorm (their exchange).
command   efdm dg run pacs_noise_single_source_mobilenetv2 --data PACS
          --weights mobilenetv2_100.safetensors -o runs/noise-one --lanes 4
time      not measured
expected  not measured
runs      100 (5 methods x 4 domains x 5 seeds)

To reuse the runs of erm and efdmix-flow, copy records.jsonl of pacs_single_source_mobilenetv2
into the folder first.
"""

from efdm.lab import NOISE_CONTRASTS, NOISE_METHODS, PACS_MOBILENETV2, Recipe

recipe = Recipe(
    protocol="single-source",
    data="pacs",
    methods=NOISE_METHODS,
    settings=PACS_MOBILENETV2,
    contrasts=NOISE_CONTRASTS,
)
