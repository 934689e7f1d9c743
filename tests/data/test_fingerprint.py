"""A run folder accepts only the data that it was started with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_digits import small_digits

from efdm.data.domains import DomainSet
from efdm.data.fingerprint import check_same, describe
from efdm.errors import RunFolderError


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return small_digits(30)


def test_other_names_with_equal_counts_are_refused(data: DomainSet) -> None:
    check_same(describe(data), describe(small_digits(30)), "run")
    other = replace(data, names=[f"new-{name}" for name in data.names])
    assert other.counts() == data.counts()
    with pytest.raises(RunFolderError, match=r"names.*choose another folder") as caught:
        check_same(describe(data), describe(other), "run")
    assert (caught.value.problem, caught.value.folder) == ("other data", Path("run"))


def test_fingerprint_covers_sizes_labels_and_splits(data: DomainSet) -> None:
    first = data.domain_names[0]
    splits = {**data.splits, first: {**data.splits[first], "val": data.splits[first]["val"][1:]}}
    for change in ({"images": data.images[..., 1:, 1:]}, {"labels": data.labels.roll(1)}, {"splits": splits}):
        assert replace(data, **change).fingerprint() != data.fingerprint()


def test_description_with_counts_only_stays_readable(data: DomainSet) -> None:
    before = {"pictures": data.counts("class")}
    check_same(before, describe(data), "run")
    first = data.domain_names[0]
    label = data.classes[0]
    before["pictures"] = {**before["pictures"], first: {**before["pictures"][first], label: 99}}
    with pytest.raises(RunFolderError, match=f"{first}/{label}: 99 before"):
        check_same(before, describe(data), "run")
