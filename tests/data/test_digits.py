import hashlib
from pathlib import Path

import pytest
import torch

from efdm.data.digits import STYLES, load_digits_domains
from efdm.data.domains import DomainSet

# of the pictures in the records in results/digits; make new records if the styles change
PIXELS = "2646736e2fce34f64add857642a055844420bf3894ce5b06d37b1cd642ecf566"


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return load_digits_domains()


def test_painters_still_make_the_shipped_pictures(data: DomainSet, monkeypatch: pytest.MonkeyPatch) -> None:
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from tools.paint_digits import paint

    pictures, names = paint()
    assert names == data.names
    assert torch.equal(torch.from_numpy(pictures).permute(0, 3, 1, 2), data.images)
    target = load_digits().target
    for name, label, domain in zip(data.names, data.labels.tolist(), data.domains.tolist(), strict=True):
        style, digit, scan = name.split("/")
        assert style == data.domain_names[domain]
        assert int(digit) == label == target[int(scan)]


def test_every_scan_is_in_one_domain(data: DomainSet) -> None:
    assert sorted(name.split("/")[2] for name in data.names) == [f"{n:04d}" for n in range(1797)]
    assert data.images.shape == (1797, 3, 32, 32)
    assert data.domain_names == list(STYLES)
    assert hashlib.sha256(data.images.numpy().tobytes()).hexdigest() == PIXELS


def test_classes_are_balanced_in_domains_and_splits(data: DomainSet) -> None:
    by_class = torch.tensor([list(row.values()) for row in data.counts().values()])
    assert (by_class.max(0).values - by_class.min(0).values).max() <= 1
    sizes = [row["test"] for row in data.counts("split").values()]
    assert max(sizes) - min(sizes) <= 5
    for domain in data.domain_names:
        train, val = data.select(domain, "train"), data.select(domain, "val")
        assert torch.equal(torch.cat([train, val]).sort().values, data.select(domain))
        assert torch.bincount(data.labels[val], minlength=10).tolist() == [5] * 10


def test_per_domain_takes_a_prefix(data: DomainSet) -> None:
    few = load_digits_domains(per_domain=40)
    assert few.counts() == {domain: {str(digit): 4 for digit in range(10)} for domain in STYLES}
    for domain in STYLES:
        assert [few.names[i] for i in few.select(domain)] == [data.names[i] for i in data.select(domain)[:40]]
        assert torch.equal(few.images[few.select(domain)], data.images[data.select(domain)[:40]])
        assert torch.bincount(few.labels[few.select(domain, "val")]).tolist() == [1] * 10


@pytest.mark.parametrize("size", [16, 37])
def test_other_sizes(size: int) -> None:
    small = load_digits_domains(size=size, per_domain=20)
    assert small.images.shape == (20 * len(STYLES), 3, size, size)
    assert (small.images.float().std(dim=(1, 2, 3)) > 10).all()


def test_counts_out_of_range() -> None:
    for count in (0, 1000):
        with pytest.raises(ValueError, match=f"per_domain must be from 1 to 4.., got {count}"):
            load_digits_domains(per_domain=count)
