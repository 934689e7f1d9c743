"""PACS, leave one domain out, ResNet-18: variants of noise on whole distributions, and combinations with EFDMix.

claim     noise with the covariance over channels and with gradient is better than its variants, and combining it with EFDMix
          at other stages does not cost accuracy.
command   efdm dg run pacs_noise_ablation_resnet18 --data PACS
          --weights resnet18.safetensors -o runs/noise-ablation18 --lanes 4
time      not measured
expected  not measured
runs      84 (7 methods x 4 domains x 3 seeds)

The three rows after the first change one option of distribution-noise. Its runs are those of pacs_leave_one_out_resnet18;
--reuse with its folder copies their records.
"""

from typing import Any

from efdm.lab import pacs_resnet

NOISE = "distribution-noise"
OPTIONS = {
    "stopped gradient": {"style_grad": "stop"},
    "noise by channel": {"draws": "channels"},
    "rotated axes": {"axes": "rotated"},
}
COMBINED = ("efdmix-joint", "efdmix-noise-flow", "noise-efdmix-flow")

rows: dict[str, dict[str, Any]] = {
    NOISE: {},
    **{row: {"method": NOISE, "options": options} for row, options in OPTIONS.items()},
    **{row: {} for row in COMBINED},
}
recipe = pacs_resnet(
    18, "leave-one-out", rows, seeds=(0, 1, 2), contrasts=tuple((NOISE, row) for row in rows if row != NOISE), published=()
)
