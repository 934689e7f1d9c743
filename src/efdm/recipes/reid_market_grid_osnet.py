"""Re-identification, Market-1501 and GRID, OSNet x1.0 from ImageNet: the paper's table.

claim     ERM < MixStyle < EFDMix in both directions.
command   efdm reid run reid_market_grid_osnet --data market=Market-1501 --data grid=GRID --weights osnet_x1_0_imagenet.pth
          -o runs/grid --lanes 4
time      not measured: neither the data nor the weights were available here
expected  published mAP, Market-1501 to GRID: OSNet 33.3, MixStyle 33.8, EFDMix 35.5; GRID to Market-1501: 3.9, 4.9, 6.4
runs      80 (4 methods x 2 directions x 10 seeds)

Official protocols: 3,368 queries and 15,913 gallery pictures of Market-1501; GRID has 10 splits of 125 training people, with
125 queries and 900 gallery pictures. Seed 0 uses split 0 of GRID, seed 1 split 1, and so on, as is usual for GRID. The
authors' code uses split 0 for all runs: for that, copy this file and set protocol="cross-dataset".

The settings are those of the authors' code, and the weights are torchreid's osnet_x1_0_imagenet.pth.
"""

from efdm.lab import ORDERS, PUBLISHED, Recipe

EPOCHS, BATCH = 60, 32  # authors' code

recipe = Recipe(
    task="reid",
    protocol="cross-dataset, split by seed",
    data="market, grid",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow"],
    # all others are the defaults of efdm.reid.Settings
    settings={"backbone": "osnet_x1_0", "weights": "osnet_x1_0_imagenet.pth", "schedule": "thirds"},
    columns={
        "grid": {"iterations": EPOCHS * (12_936 // BATCH)},  # trained on Market-1501
        "market": {"iterations": EPOCHS * (250 // BATCH)},  # trained on GRID
    },
    seeds=tuple(range(10)),
    orders=ORDERS,
    contrasts=(("efdmix", "efdmix-flow"),),
    published=PUBLISHED["market, grid", "cross-dataset", "osnet_x1_0"],
)
