from dataclasses import replace
from pathlib import Path

import pytest
from dg_runs import small_digits
from trees import touch

from efdm.data.datasets import DIGITS, PACS, Listing, check_domains, check_same, describe, list_domains, uneven_classes
from efdm.data.domains import DomainSet
from efdm.errors import RunFolderError, SettingError


def test_fixed_data_sets_are_listed_without_their_files() -> None:
    assert list_domains(PACS, [Path("nowhere")]).domain_names == ["art_painting", "cartoon", "photo", "sketch"]
    assert list_domains(DIGITS, []).classes == [str(digit) for digit in range(10)]


def test_a_folder_is_listed_by_its_names(tmp_path: Path) -> None:
    touch(tmp_path, ["day/cat/0.png", "day/dog/0.png", "night/cat/0.png"])
    assert list_domains("mine", [tmp_path]) == Listing(["day", "night"], ["cat", "dog"])


@pytest.mark.parametrize(("name", "hint"), [("dya", "did you mean 'day'?"), ("cat", "class"), ("x", "'x'")])
def test_an_unknown_domain_is_named(name: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint) as caught:
        check_domains("test_domains", ["day", name], Listing(["day", "night"], ["cat", "dog"]))
    assert caught.value.settings == ("test_domains",)


def test_uneven_classes_are_reported_by_the_domain_that_differs() -> None:
    data = small_digits()
    assert uneven_classes(data, data.domain_names) == []
    first, second, *_ = data.domain_names
    missing = data.subset(((data.domains != 0) | (data.labels > 1)).nonzero()[:, 0])
    assert uneven_classes(missing, data.domain_names) == [f"{first} has no 0, 1"]
    extra = data.subset(((data.domains == 1) | (data.labels < 9)).nonzero()[:, 0])
    assert uneven_classes(extra, data.domain_names) == [f"only {second} has 9"]
    test_only = data.subset(((data.domains < 2) | (data.labels < 9)).nonzero()[:, 0])
    assert uneven_classes(test_only, data.domain_names, [first, second]) == [f"only {first}, {second} have 9"]


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
    with pytest.raises(RunFolderError, match="numbers of pictures differ"):
        check_same(before, describe(data), "run")
