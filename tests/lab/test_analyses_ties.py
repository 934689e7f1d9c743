import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from efdm.data.domains import DomainSet
from efdm.lab.analyses import Sample, pick, ties
from efdm.lab.analyses.ties import relus_of, shares, table, with_prelu


class Bottleneck(nn.Module):
    """A stage with an activation inside and none at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.out = nn.Conv2d(3, 6, 3), nn.ReLU6(inplace=True), nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.act(self.conv(x)))
        return y


def classifier(*stages: nn.Module) -> nn.Sequential:
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_shares_by_hand() -> None:
    none, half, all_equal = [1.0, 2, 3, 4], [5.0, 5, 6, 7], [0.0, 0, 0, 0]
    first = (torch.tensor([0, 1]), {"a": torch.tensor([[none, half], [all_equal, half]])})
    second = (torch.tensor([1]), {"a": torch.tensor([[all_equal, all_equal]])})
    # samples: (0 + 50) / 2, (100 + 50) / 2, 100
    expected = {"positions": 4, "percent": round((25 + 75 + 100) / 3, 3), "domains": {"x": 25, "y": 87.5}}
    assert shares([first, second], ["x", "y"]) == {"a": expected}


def test_prelu_replaces_relu_and_relu6() -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Sequential(nn.ReLU6())).eval()
    swapped = with_prelu(model)
    x = torch.tensor([-4.0, 2, 8])
    torch.testing.assert_close(swapped(x.clone()), torch.tensor([-4 * 0.25**2, 2, 8]))  # not clipped at 6
    assert model(x.clone()).tolist() == [0, 2, 6]
    assert not any(m.training for m in swapped.modules())


def test_a_shared_relu_is_swapped_under_all_names() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(relu, nn.Conv2d(3, 4, 3), relu, nn.Sequential(relu))
    swapped = with_prelu(model)
    assert (relus_of(model), relus_of(swapped)) == (["ReLU"], [])
    assert all(torch.equal(swapped.state_dict()[k], v) for k, v in model.state_dict().items())


def test_ties_of_relu_prelu_and_bf16(data: DomainSet, tmp_path: Path) -> None:
    model = classifier(Bottleneck())
    content = ties.analyse(Sample(model, data, pick(data, 3), 32), tmp_path, stages=["0"])
    assert json.loads((tmp_path / "ties.json").read_text()) == content
    assert content["own"] == "ReLU6"
    percent = {(r["stage"], r["at"], r["activation"], r["precision"]): r["percent"] for r in content["rows"]}
    inside = {key[2:]: value for key, value in percent.items() if key[:2] == ("0", "activation")}
    assert inside["own", "fp32"] > inside["prelu", "fp32"] + 20
    assert inside["own", "bf16"] > inside["own", "fp32"]
    assert inside["prelu", "bf16"] > inside["prelu", "fp32"] + 20
    assert percent["0", "output", "own", "fp32"] < inside["own", "fp32"]
    assert percent["pictures", "output", "", "uint8"] > 90
    assert (tmp_path / "ties.md").read_text() == table(content)


def test_a_final_activation_is_listed_once(data: DomainSet, tmp_path: Path) -> None:
    stage = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    content = ties.analyse(Sample(classifier(stage), data, pick(data, 1), 32), tmp_path, stages=["0"], precisions=["fp32"])
    assert [(r["stage"], r["at"]) for r in content["rows"]] == [("pictures", "output"), ("0", "output"), ("0", "output")]


def test_a_model_without_relu(data: DomainSet, tmp_path: Path) -> None:
    model = classifier(nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU()))
    content = ties.analyse(Sample(model, data, pick(data, 1), 32), tmp_path, stages=["0"], precisions=["fp32"])
    assert [r["activation"] for r in content["rows"]] == ["", "own"]


def test_default_stages(data: DomainSet, tmp_path: Path) -> None:
    model = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=3)
    content = ties.analyse(Sample(model, data, pick(data, 1), 64), tmp_path, precisions=["fp32"])
    assert [r["stage"] for r in content["rows"]] == ["pictures", *["stage1", "stage2", "stage3", "stage4"] * 2]
    assert [r["positions"] for r in content["rows"]] == [1024, *[256, 64, 16, 4] * 2]


def test_table_by_hand() -> None:
    place = {"stage": "stage1", "at": "output", "positions": 9, "domains": {}}
    rows = [
        {**place, "stage": "pictures", "positions": 16, "activation": "", "precision": "uint8", "percent": 97.25},
        {**place, "activation": "own", "precision": "fp32", "percent": 12.34},
        {**place, "activation": "prelu", "precision": "fp32", "percent": 5.0},
    ]
    head, _, pictures, stage, *_ = table({"rows": rows, "own": "ReLU"}).splitlines()
    assert head == "| place | values | ReLU, fp32 | PReLU, fp32 |"
    assert pictures == "| pictures | 16 | 97.2 | 97.2 |"
    assert stage == "| stage1, after the stage | 9 | 12.3 | 5.0 |"


def test_every_bar_is_in_the_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"stage": "stage1", "at": "output", "percent": 50.0}
    variants = [(activation, precision) for activation in ("own", "prelu") for precision in ("fp32", "bf16")]
    rows = [{**place, "stage": "pictures", "activation": "", "precision": "uint8"}]
    rows += [{**place, "activation": activation, "precision": precision} for activation, precision in variants]
    drawn: list[Any] = []
    monkeypatch.setattr(ties, "save", lambda figure, path: drawn.append(figure))
    ties.draw({"rows": rows, "own": "ReLU", "model": "a model"}, tmp_path / "ties.png")
    (figure,) = drawn
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(figure.axes[0].containers) == 5
    box = legend.get_window_extent()
    assert box.x0 > 10
    assert box.x1 < figure.bbox.width - 10
