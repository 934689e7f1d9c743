from __future__ import annotations

from pathlib import Path

import pytest
from small_digits import small_digits
from trees import touch

from efdm.data.datasets import DIGITS, PACS, Listing, check_domains, list_domains, uneven_classes
from efdm.errors import SettingError


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
