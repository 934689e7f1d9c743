import json
import sys
from pathlib import Path

import dg as benchmark
import pytest
import torch
from baselines import three_sort

from efdm import EFDMix
from efdm.dg.settings import Settings
from efdm.lab import load_recipe


def test_the_benchmark_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "dg.json"
    small = ["--batch", "4", "--size", "16", "--rounds", "2", "--steps", "1", "--lanes", "2"]
    monkeypatch.setattr(sys, "argv", ["dg.py", "--device", "cpu", "--out", str(out), *small])
    benchmark.main()
    record = json.loads(out.read_text())
    (steps,) = record["steps"]
    assert list(steps["times"]) == ["erm", "mixstyle", "efdmix", "efdmix-flow", "distribution-noise", "three_sort"]
    assert steps["times"]["erm"]["to_erm"] == 1
    assert [row["lanes"] for row in record["lanes"]] == [2]
    for row in (steps, *record["lanes"]):
        assert row["stages"] == list(load_recipe("digits_demo").settings["stages"])
    assert record["environment"]["device"] == "cpu"


@pytest.mark.parametrize("backbone", benchmark.RECIPES)
def test_stages_and_augmentation_are_those_of_the_recipes(backbone: str) -> None:
    timed = benchmark.as_in_its_recipe(Settings("noise", ("a",), ("b",)), backbone)
    recipe = load_recipe(benchmark.RECIPES[backbone])
    assert recipe.settings["backbone"].startswith(backbone)  # "resnet50_v1" has the shapes of "resnet50"
    assert (timed.stages, timed.augmentation) == (recipe.settings["stages"], recipe.settings["augmentation"])


def test_the_compared_layers_compute_the_same() -> None:
    features = torch.rand(6, 3, 5, 5)
    outputs = []
    for layer in (EFDMix(p=1.0), benchmark.ThreeSort(p=1.0)):
        torch.manual_seed(1)
        outputs.append(layer(features))
    torch.testing.assert_close(*outputs)
    assert not torch.allclose(outputs[0], features)
    torch.testing.assert_close(three_sort(features, features.flip(0)).sum(), features.sum())
