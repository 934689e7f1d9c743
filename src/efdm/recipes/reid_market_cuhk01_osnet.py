"""Re-identification, Market-1501's training half and CUHK01, OSNet x1.0 from random weights, a short schedule.

claim     ERM < MixStyle < EFDMix in both directions: trained on Market-1501 and tested on CUHK01, and vice versa.
command   efdm reid run reid_market_cuhk01_osnet --data market=market1501.zip --data cuhk01=cuhk01.zip -o runs/reid --lanes 4
time      35 to 65 s a run on one H200, after a minute to read and compile
expected  mAP with ERM 15.9 on CUHK01 and 7.2 on Market-1501; with EFDMix 15.4 and 8.3; no difference is significant. The
          paper has no numbers for these sets, and starts from ImageNet
runs      30 (5 methods x 2 directions x 3 seeds)

The test protocols are those of reid_market_cuhk01_resnet18. All layers start from random weights and have the same
learning rate, and both directions are trained for the same number of iterations: 15 epochs of Market-1501's half, 50 of
CUHK01.
"""

from dataclasses import replace

from efdm.lab import load_recipe

base = load_recipe("reid_market_cuhk01_resnet18")
recipe = replace(
    base,
    name="",
    # lr and weight decay of OSNet's paper for random weights
    settings={**base.settings, "backbone": "osnet_x1_0", "weights": "random", "stages": ("conv2", "conv3"), "lr": 0.065},
    columns={name: {**changes, "iterations": 3000} for name, changes in base.columns.items()},
    notes=(),
)
