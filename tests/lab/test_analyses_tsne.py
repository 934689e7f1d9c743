import csv
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from efdm.data.domains import DomainSet
from efdm.lab.analyses import Sample, pick, tsne
from efdm.lab.analyses.tsne import allowed_perplexity, embedded, probe, statistics
from efdm.ops.moments import channel_stats


def test_statistics_of_all_batches() -> None:
    x = torch.randn(5, 3, 4, 4)
    found, expected = statistics(x.split(2)), channel_stats(x)._asdict()
    assert list(found) == list(expected)
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values)


def test_perplexity_for_few_samples() -> None:
    assert allowed_perplexity(1000) == 50
    assert allowed_perplexity(31) == 10
    for wrong in (-3, 0, float("nan")):
        with pytest.raises(ValueError, match=f"perplexity must be > 0, got {wrong:g}"):
            allowed_perplexity(31, wrong)


def test_probe_accuracy() -> None:
    labels = torch.arange(400) % 4
    same = torch.randn(400, 3)
    apart = same + 20 * torch.nn.functional.one_hot(labels)[:, :3]
    assert probe(same, labels)[0] == pytest.approx(0.25, abs=0.08)
    assert probe(apart, labels)[0] > 0.99


def test_the_probe_is_cross_validated() -> None:
    labels = torch.arange(60) % 2
    memorable = torch.randn(60, 200)  # more channels than samples: training samples can be memorized
    assert probe(memorable, labels)[0] < 0.75


def test_the_probe_needs_two_domains() -> None:
    with pytest.raises(ValueError, match="two domains"):
        probe(torch.randn(5, 2), torch.zeros(5).long())
    with pytest.raises(ValueError, match="two pictures each"):
        probe(torch.randn(5, 2), torch.tensor([0, 0, 0, 0, 1]))


def test_coordinates_are_reproducible_and_scale_free() -> None:
    x = torch.cat([torch.randn(12, 4), torch.randn(12, 4) + 30])
    x[:, 3] = 1  # a constant channel
    points = embedded(x)
    assert torch.equal(points, embedded(x))
    torch.testing.assert_close(points, embedded(x * torch.tensor([1, 1024, 1, 1])))
    first, second = points[:12], points[12:]
    spread = (first - first.mean(0)).norm(dim=1).max() + (second - second.mean(0)).norm(dim=1).max()
    assert (first.mean(0) - second.mean(0)).norm() > spread  # the groups stay separate


def test_files_and_numbers(data: DomainSet, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    content = tsne.analyse(Sample(model, data, pick(data, 8), 32), tmp_path, stages=["1"])
    assert json.loads((tmp_path / "tsne.json").read_text()) == content
    assert content["chance"] == 0.25
    assert content["perplexity"] == round(31 / 3, 3)
    assert set(content["accuracy"]) == {"mean", "std", "skewness", "kurtosis", "infinity_norm"}
    assert content["accuracy"]["mean"]["mean"] > 0.6  # the styles differ
    with (tmp_path / "tsne.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head[:4] == ["domain", "class", "mean_x", "mean_y"]
    assert [row[0] for row in rows] == [d for d in data.domain_names for _ in range(8)]
    assert all(len(row) == len(head) == 12 for row in rows)
