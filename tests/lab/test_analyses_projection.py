import json
from pathlib import Path

import pytest
import torch
from torch import nn

from efdm.data.domains import DomainSet
from efdm.dg.evaluate import count_correct
from efdm.lab.analyses import ANALYSES, Sample, pick, projection
from efdm.lab.analyses.projection import projected, quantile_functions
from efdm.models.backbones import build_backbone

STAGES = ("stage1", "stage2")


@pytest.fixture
def model() -> nn.Module:
    return build_backbone("tiny", 10).eval()


def test_quantile_functions_are_means_of_sorted_features(data: DomainSet, model: nn.Module) -> None:
    sample = Sample(model, data, pick(data, 5, domains=["ink", "neon"]), 32, batch=4)
    found = quantile_functions(sample, STAGES)
    features = torch.cat([f["stage2"] for _, f in sample.features("stage2")]).flatten(2).sort(-1).values
    assert list(found) == list(STAGES)
    torch.testing.assert_close(found["stage2"].values, torch.stack([features[:5].mean(0), features[5:].mean(0)]))


def test_projected_features_have_the_distribution_of_a_training_domain(data: DomainSet, model: nn.Module) -> None:
    known, new = (Sample(model, data, pick(data, 3, domains=[d]), 32) for d in ("ink", "mosaic"))
    references = quantile_functions(known, STAGES)
    with projected(model, references):
        (_, features) = next(new.features(STAGES))
    for stage in STAGES:
        rows = features[stage].flatten(2).sort(-1).values
        assert torch.equal(rows, references[stage].values.expand_as(rows))
    assert not any(module._forward_hooks for module in model.modules())


def test_files_and_accuracies(data: DomainSet, model: nn.Module, tmp_path: Path) -> None:
    sample, known = Sample(model, data, pick(data, None), 32), ["ink", "neon", "mosaic"]
    content = projection.analyse(sample, tmp_path, stages=STAGES, train_domains=known, strengths=(0.5,), methods=("efdm",))
    assert {p.name for p in tmp_path.iterdir()} == set(ANALYSES["projection"].files)
    assert json.loads((tmp_path / "projection.json").read_text())["rows"][0]["strength"] == 0
    outline = pick(data, None, domains=["outline"])
    references = quantile_functions(Sample(model, data, pick(data, None, domains=known, split="train"), 32), STAGES)
    with projected(model, references, 0.5):
        half = count_correct(model, data, outline, 32)
    assert [row["counts"] for row in content["rows"]] == [
        {"outline": count_correct(model, data, outline, 32)}, {"outline": half},
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no pictures of painting"):
        projection.analyse(sample, tmp_path, stages=STAGES, train_domains=["ink", "painting"])
    with pytest.raises(ValueError, match="other domains"):
        projection.analyse(sample, tmp_path, stages=STAGES, train_domains=data.domain_names)
