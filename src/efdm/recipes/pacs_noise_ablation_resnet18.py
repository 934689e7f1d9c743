"""PACS, leave one domain out, ResNet-18: variants of noise on whole distributions, and combinations with EFDMix.

claim     noise with the covariance over channels and with gradient is better than its variants, and combining it with EFDMix
          at other stages does not cost accuracy.
command   efdm dg run pacs_noise_ablation_resnet18 --data PACS
          --weights resnet18.safetensors -o runs/noise-ablation18 --lanes 4
time      not measured
expected  not measured
runs      132 (11 methods x 4 domains x 3 seeds)

Rows other than efdmix-* and noise-* change one option of distribution-noise. To reuse the runs of
distribution-noise, copy records.jsonl of pacs_noise_leave_one_out_resnet18 into the folder first.
"""

from typing import Any

from efdm.lab import pacs_resnet

NOISE = "distribution-noise"


def variant(**options: Any) -> dict[str, Any]:
    return {"method": NOISE, "options": options}


rows: dict[str, dict[str, Any]] = {
    NOISE: {},
    "stopped gradient": variant(style_grad="stop"),
    "noise by channel": variant(draws="channels"),
    **{f"strength {strength}": variant(strength=strength) for strength in (0.5, 1.5)},
    **{f"p {p}": variant(p=p) for p in (0.25, 1.0)},
    "rotated axes": variant(axes="rotated"),
    "efdmix-joint": {},
    "efdmix-noise-flow": {},
    "noise-efdmix-flow": {},
}
recipe = pacs_resnet(
    18,
    "leave-one-out",
    rows,
    seeds=(0, 1, 2),
    contrasts=tuple((NOISE, row) for row in rows if row != NOISE),
    published=(),
)
