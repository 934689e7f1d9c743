"""PACS, single source, ResNet-18, a short schedule: noise on whole distributions.

claim     Gaussian noise on whole distributions is better than EFDMix, DSU (noise on means and standard deviations) and
          CrossNorm (their exchange).
command   efdm dg run pacs_noise_single_source_resnet18 --data PACS
          --weights resnet18.safetensors -o runs/noise-one18 --lanes 4
time      not measured
expected  not measured
runs      100 (5 methods x 4 domains x 5 seeds)

To reuse the runs of all methods but distribution-noise, copy records.jsonl of pacs_single_source_resnet18
into the folder first.
"""

from efdm.lab import NOISE_CONTRASTS, NOISE_METHODS, pacs_resnet

recipe = pacs_resnet(18, "single-source", NOISE_METHODS, contrasts=NOISE_CONTRASTS)
