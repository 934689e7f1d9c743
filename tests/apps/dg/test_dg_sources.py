"""Layouts of pictures on disk: official test pictures, empty folders, zips, PACS."""

from pathlib import Path

import pytest
from dg_commands import draw, run, studying, training
from runs import lines

PACS = ("art_painting", "cartoon", "photo", "sketch")
PARTS = {"train": 6, "crossval": 2, "test": 3}  # pictures per class


@pytest.fixture
def vlcs(tmp_path: Path) -> Path:
    for number, domain in enumerate(("CALTECH", "LABELME", "SUN")):
        for part, count in PARTS.items():
            draw(tmp_path / "VLCS" / domain, (part,), ("0", "1"), count + number * (part == "test"))
    return tmp_path / "VLCS"


def test_train_reports_accuracy_on_official_test_pictures(vlcs: Path, tmp_path: Path) -> None:
    result = run(*training(vlcs, tmp_path / "out"), "--test-domains", "SUN")
    assert "all pictures" not in result.output
    printed = result.output.partition("accuracy on the official test pictures of the held-out domains")[2]
    assert " of 10)" in printed.splitlines()[1]


def test_run_selects_on_val_and_scores_on_test(vlcs: Path, recipe: Path, tmp_path: Path) -> None:
    assert "official test pictures" in " ".join(run(*studying(recipe, vlcs, tmp_path / "out")).output.split())
    for record in lines(tmp_path / "out" / "records.jsonl"):
        ((domain, (_, count)),) = record["test"].items()
        assert record["official_test"] == [domain]
        assert (count, record["val"][domain][1]) == ({"CALTECH": 6, "LABELME": 8, "SUN": 10}[domain], 4)
    assert "official test pictures" in " ".join(run("table", tmp_path / "out", "--selection", "oracle").output.split())


@pytest.mark.parametrize("domains", [PACS, (*PACS[:3], "clipart")], ids=["pacs", "almost"])
def test_pacs_read_as_a_folder_comes_with_a_warning(tmp_path: Path, domains: tuple[str, ...]) -> None:
    pictures = draw(tmp_path / "mine", domains, ("dog", "horse"), count=3)
    assert ("PACS" in run(*training(pictures, tmp_path / "out")).output) == (domains == PACS)
