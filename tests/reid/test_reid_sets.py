"""Data sets by name, read from files."""

from pathlib import Path

import pytest
from people import make_grid, make_market, small_people

from efdm.data.people import read_people
from efdm.errors import SettingError
from efdm.reid import PersonSets, read_sets

SIZE = (16, 8)


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    return {"market": make_market(tmp_path / "market"), "grid": make_grid(tmp_path / "grid")}


def test_another_split_equals_reading_it(paths: dict[str, Path]) -> None:
    sets = read_sets(paths, size=SIZE)
    for split in (0, 3, 9):
        found = sets.with_split(split)
        assert isinstance(found, PersonSets)
        assert found["market"] is sets["market"]
        assert found["grid"].fingerprint() == read_people(paths["grid"], split=split, size=SIZE).fingerprint()
        assert found["grid"].fingerprint() == read_sets(paths, size=SIZE, split=split)["grid"].fingerprint()
    assert len({sets.with_split(split).fingerprint() for split in range(10)}) > 5
    with pytest.raises(SettingError, match="from 0 to 9"):
        read_sets(paths, size=SIZE, split=10)


def test_another_split_without_missing_pictures(paths: dict[str, Path]) -> None:
    probes = sorted((paths["grid"] / "probe").iterdir())
    for probe in probes[:4]:
        probe.unlink()
    found = read_sets(paths, size=SIZE).with_split(4)["grid"]  # trains on people 5, 6 and 1
    assert found.people[found.select("train")].tolist() == [1, 5, 6, 5, 6]
    assert found.counts()["query"]["pictures"] == 0


def test_layouts_are_given_by_name(paths: dict[str, Path]) -> None:
    assert read_sets({"market": paths["market"]}, size=SIZE, layouts={"market": "market-like"}).layouts == {
        "market": "market-like"
    }
    with pytest.raises(SettingError, match="layout"):
        read_sets(paths, size=SIZE, layouts={"markt": "market1501"})


def test_sets_that_were_not_read_from_files_have_no_other_splits() -> None:
    with pytest.raises(SettingError, match="splits of a are unknown; use read_sets"):
        PersonSets({"a": small_people()}).with_split(1)
