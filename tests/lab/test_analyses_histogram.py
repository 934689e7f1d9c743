import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from efdm.data.digits import load_digits_domains
from efdm.data.domains import DomainSet
from efdm.lab.analyses import Sample, histogram, pick
from efdm.lab.analyses.histogram import Histograms, choose_channel, histograms, standardized


def zeros_and_ones() -> Tensor:
    """Return features (1, 1, 4) with mean 1/4 and unbiased standard deviation 1/2."""
    return torch.tensor([[[0.0, 0.0, 1.0, 0.0]]])


def test_standardized_by_hand() -> None:
    values, stats = standardized(zeros_and_ones())
    assert values.tolist() == [[[-0.5, -0.5, 1.5, -0.5]]]
    assert (stats.mean.item(), stats.std.item()) == (0.25, 0.5)


def test_counts_by_hand() -> None:
    found = histograms([(zeros_and_ones(), torch.tensor([1]))], ["a", "b"], bins=4, limit=2)
    # below, [-2, -1), [-1, 0), [0, 1), [1, 2), above
    assert found.edges.tolist() == [-2, -1, 0, 1, 2]
    assert found.counts[1, 0].tolist() == [0, 0, 3, 0, 1, 0]
    assert found.counts[0].sum() == 0
    outside = histograms([(zeros_and_ones(), torch.tensor([0]))], ["a"], bins=2, limit=0.4)
    assert outside.shares()[0, 0].tolist() == [0.75, 0, 0, 0.25]


def test_counts_equal_numpy() -> None:
    x, domains = torch.randn(7, 3, 40).exp(), torch.tensor([0, 1, 1, 0, 1, 0, 0])
    found = histograms([(x[:3], domains[:3]), (x[3:], domains[3:])], ["a", "b"])
    values = standardized(x)[0]
    for domain in range(2):
        for channel in range(3):
            mine = values[domains == domain][:, channel].numpy()
            expected, _ = np.histogram(mine, found.edges.numpy())
            assert found.counts[domain, channel, 1:-1].tolist() == expected.tolist()
            assert found.counts[domain, channel].sum() == mine.size


def test_pooled_moments() -> None:
    x = torch.randn(5, 2, 30).exp()
    found = histograms([(x[:2], torch.zeros(2).long()), (x[2:], torch.zeros(3).long())], ["a"])
    values = standardized(x.double())[0].transpose(0, 1).flatten(1)
    torch.testing.assert_close(found.skewness[0], (values**3).mean(1), rtol=1e-5, atol=0)
    torch.testing.assert_close(found.kurtosis[0], (values**4).mean(1), rtol=1e-5, atol=0)


def test_constant_samples() -> None:
    x = torch.cat([zeros_and_ones(), torch.full((2, 1, 4), 0.1)])
    found = histograms([(x, torch.zeros(3).long())], ["a"])
    assert found.counts.sum() == 4
    assert found.constant.tolist() == [[2]]
    alone = histograms([(zeros_and_ones(), torch.zeros(1).long())], ["a"])
    torch.testing.assert_close(found.skewness, alone.skewness)


def test_distance_to_normal() -> None:
    x = torch.stack([torch.randn(40, 2000), torch.randn(40, 2000).relu()], 1)
    found = histograms([(x, torch.zeros(40).long())], ["a"])
    near, far = found.normal_distance()[0].tolist()
    assert near < 0.02 < 0.3 < far
    assert found.kurtosis[0, 0].item() == pytest.approx(3, abs=0.1)
    assert found.skewness[0, 0].item() == pytest.approx(0, abs=0.05)


def with_distances(*distances: float) -> Histograms:
    """Return histograms of two domains that differ by the given shares of values; NaN for an empty channel."""
    first = torch.tensor([[0.0, 100, 0, 0]] * len(distances))
    second = torch.tensor([[0.0, 100 - 100 * d, 100 * d, 0] if d == d else [0.0] * 4 for d in distances])
    none = torch.zeros(2, len(distances))
    return Histograms(["a", "b"], torch.linspace(-1, 1, 3), torch.stack([first, second]), none, none, none.long())


def test_channel_rules() -> None:
    found = with_distances(0.9, math.nan, 0.1, 0.4)
    assert found.domain_distance().nan_to_num(-1).tolist() == pytest.approx([0.9, -1, 0.1, 0.4])
    assert choose_channel(found, "typical") == 3
    assert choose_channel(found, "farthest") == 0
    assert choose_channel(found, 2) == 2


@pytest.mark.parametrize(
    ("channel", "distances", "message"),
    [(4, (0.1,), "between 0 and 0"), ("best", (0.1,), "'best' is not one of"), ("typical", (math.nan,), "constant in some")],
)
def test_wrong_channels(channel: int | str, distances: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_channel(with_distances(*distances), channel)


def test_files_and_numbers(data: DomainSet, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    content = histogram.analyse(Sample(model, data, pick(data, 6), 32, "small"), tmp_path / "new", stages=["0"])
    assert json.loads((tmp_path / "new" / "histogram.json").read_text()) == content
    assert content["pictures"] == dict.fromkeys(data.domain_names, 6)
    assert (content["model"], content["channels"], content["chosen"]) == ("small", 5, "typical")
    with (tmp_path / "new" / "histogram.csv").open() as file:
        head, *rows = csv.reader(file)
    assert head == ["from", "to", *data.domain_names]
    assert len(rows) == 100
    for column, domain in enumerate(data.domain_names, 2):  # densities and outside shares sum to 1
        inside = sum(float(row[column]) for row in rows) * 0.08
        assert inside + sum(content["domains"][domain]["outside"].values()) == pytest.approx(1, abs=1e-3)


def test_a_channel_that_is_constant_in_one_domain(tmp_path: Path) -> None:
    data = load_digits_domains(per_domain=2)
    data.images[data.domains == 1] = 7  # constant features
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    content = histogram.analyse(Sample(model, data, pick(data, 2), 32), tmp_path, stages=["0"], channel=1)
    empty = content["domains"][data.domain_names[1]]
    assert (empty["kurtosis"], empty["constant_samples"]) == (None, 2)
    assert "NaN" not in (tmp_path / "histogram.json").read_text()
