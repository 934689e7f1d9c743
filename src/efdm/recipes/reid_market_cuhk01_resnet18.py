"""Re-identification, Market-1501's training half and CUHK01, ResNet-18 from ImageNet, a short schedule.

claim     ERM < MixStyle < EFDMix in both directions: trained on Market-1501 and tested on CUHK01, and vice versa.
command   efdm reid run reid_market_cuhk01_resnet18 --data market=market1501.zip --data cuhk01=cuhk01.zip
          --weights resnet18.safetensors -o runs/reid18 --lanes 4
time      about 8 minutes on one H200
expected  mAP with ERM 27.9 on CUHK01 and 10.1 on Market-1501; with EFDMix 28.4 and 12.8; the paper has no numbers for these
          sets
runs      30 (5 methods x 2 directions x 3 seeds)

Both directions cross data sets, cameras and countries. CUHK01 as test: queries are camera A and the gallery is camera B, all
971 people, averaged over the choice of one query per person. Market's training half as test: one picture for each person
and camera, drawn by a hash of its name, is a query, and the rest is the gallery. Queries and galleries are written beside
the records. Numbers of Market's official test are not comparable.

Runs take about 20 epochs of either training set, at the learning rate of the authors' code scaled to 64 pictures. All layers
have the same rate: with the authors' factor of 5 for the classifier, the first steps destroyed the ImageNet features (ERM,
80 steps of 32 pictures of 64 x 32 pixels: mAP on 200 people of CUHK01 6.0 without the factor, 4.0 with it, 4.7 before).
"""

from efdm.lab import ORDERS, Recipe

recipe = Recipe(
    task="reid",
    protocol="cross-dataset",
    data="market, cuhk01",
    methods=["erm", "mixstyle", "efdmix", "efdmix-flow", "dsu"],
    settings={
        "backbone": "resnet18",
        "weights": "resnet18.timm.fp16.safetensors",
        "stages": ("layer1", "layer2"),  # paper, comment in its source
        "batch": 64,  # authors' code: 32, for 60 epochs
        "lr": 0.02,
        "classifier_lr": 1.0,
        "weight_decay": 5e-4,
    },
    columns={  # test set -> its protocol, and the length of training on the other set
        "cuhk01": {"iterations": 4000, "protocols": {"cuhk01": "camera-pair"}},
        "market": {"iterations": 1200, "protocols": {"market": "person-camera"}},
    },
    seeds=(0, 1, 2),
    orders=ORDERS,
    contrasts=(("efdmix", "efdmix-flow"), ("erm", "efdmix"), ("erm", "efdmix-flow"), ("erm", "dsu")),
    std="error",
)
