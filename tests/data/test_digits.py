from __future__ import annotations

import sys

import pytest
import torch

from efdm.data.digits import STYLES, load_digits_domains
from efdm.data.domains import DomainSet
from efdm.errors import MissingExtraError


@pytest.fixture(scope="module")
def data() -> DomainSet:
    pytest.importorskip("sklearn.datasets")
    return load_digits_domains()


def brightness(data: DomainSet, domain: str) -> torch.Tensor:
    """``(n, size, size)`` in [0, 1]."""
    return data.images[data.select(domain)].float().mean(1) / 255


def test_every_digit_is_in_one_domain_with_its_label(data: DomainSet) -> None:
    from sklearn.datasets import load_digits

    scans = [name.split("/")[2] for name in data.names]
    assert sorted(scans) == [f"{n:04d}" for n in range(1797)]
    assert data.images.shape == (1797, 3, 32, 32)
    assert data.domain_names == list(STYLES)
    target = load_digits().target
    for name, label, domain in zip(data.names, data.labels.tolist(), data.domains.tolist(), strict=True):
        style, digit, scan = name.split("/")
        assert style == data.domain_names[domain]
        assert int(digit) == label == target[int(scan)]


def test_classes_are_balanced_in_domains_and_splits(data: DomainSet) -> None:
    by_class = torch.tensor([list(row.values()) for row in data.counts().values()])
    assert (by_class.max(0).values - by_class.min(0).values).max() <= 1
    sizes = [row["test"] for row in data.counts("split").values()]
    assert max(sizes) - min(sizes) <= 5
    for domain in data.domain_names:
        train, val = data.select(domain, "train"), data.select(domain, "val")
        assert torch.equal(torch.cat([train, val]).sort().values, data.select(domain))
        assert torch.bincount(data.labels[val], minlength=10).tolist() == [5] * 10


def test_per_domain_takes_a_reproducible_prefix(data: DomainSet) -> None:
    few = load_digits_domains(per_domain=40)
    assert torch.equal(few.images, load_digits_domains(per_domain=40).images)
    assert load_digits_domains(seed=1, per_domain=10).names[:10] != few.names[:10]
    assert few.counts() == {domain: {str(digit): 4 for digit in range(10)} for domain in STYLES}
    for domain in STYLES:
        assert [few.names[i] for i in few.select(domain)] == [data.names[i] for i in data.select(domain)[:40]]
        assert torch.bincount(few.labels[few.select(domain, "val")]).tolist() == [1] * 10


@pytest.mark.parametrize("size", [16, 37])
def test_other_sizes(size: int) -> None:
    pytest.importorskip("sklearn.datasets")
    small = load_digits_domains(size=size, per_domain=20)
    assert small.images.shape == (20 * len(STYLES), 3, size, size)
    assert (small.images.float().std(dim=(1, 2, 3)) > 10).all()


def test_polarity_of_styles(data: DomainSet) -> None:
    # compare the centre with the corners, which show the background
    sign = {}
    for domain in STYLES:
        light = brightness(data, domain)
        ground = torch.stack([light[:, :4, :4], light[:, :4, -4:], light[:, -4:, :4], light[:, -4:, -4:]]).mean((0, 2, 3))
        middle = light[:, 8:-8, 8:-8].mean((1, 2))
        sign[domain] = float((middle > ground).float().mean())
    assert sign["ink"] < 0.02
    assert sign["neon"] > 0.98
    assert 0.3 < sign["mosaic"] < 0.7
    assert sign["outline"] < 0.1


@pytest.mark.parametrize("domain", STYLES)
def test_digits_stay_readable(data: DomainSet, domain: str) -> None:
    # the nearest neighbour of a digit by shape is usually the same digit; thin outlines rarely overlap, so the threshold is
    # low, but far above chance
    images = data.images[data.select(domain)].float() / 255
    border = torch.cat([images[..., :2, :].flatten(2), images[..., -2:, :].flatten(2)], dim=2).mean(2)
    shape = (images - border[..., None, None]).square().sum(1, keepdim=True).sqrt()
    shape = torch.nn.functional.avg_pool2d(shape, 3, 2).flatten(1)
    shape = torch.nn.functional.normalize(shape - shape.mean(1, keepdim=True), dim=1)
    likeness = shape @ shape.T
    likeness.fill_diagonal_(-1)
    labels = data.labels[data.select(domain)]
    assert (labels[likeness.argmax(1)] == labels).float().mean() > 0.6


def test_sizes_and_counts_out_of_range() -> None:
    with pytest.raises(ValueError, match="at least 16 pixels, got 8"):
        load_digits_domains(size=8)
    pytest.importorskip("sklearn.datasets")
    for count in (0, 1000):
        with pytest.raises(ValueError, match=f"per_domain must be from 1 to 4.., got {count}"):
            load_digits_domains(per_domain=count)


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"efdm\[dg\]"):
        load_digits_domains()
