"""What the commands tell of where the pictures came from: test pictures kept apart, empty folders, PACS."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from dg_commands import draw, run, studying, training

PACS = ("art_painting", "cartoon", "photo", "sketch")
PARTS = {"train": 6, "crossval": 2, "test": 3}  # of each class


@pytest.fixture
def vlcs(tmp_path: Path) -> Path:
    for number, domain in enumerate(("CALTECH", "LABELME", "SUN")):
        for part, count in PARTS.items():
            draw(tmp_path / "VLCS" / domain, (part,), ("0", "1"), count + number * (part == "test"))
    return tmp_path / "VLCS"


def test_train_says_that_it_counts_test_pictures(vlcs: Path, tmp_path: Path) -> None:
    result = run(*training(vlcs, tmp_path / "out"), "--test-domains", "SUN")
    assert result.exit_code == 0, result.output
    assert "all pictures" not in result.output
    told = result.output.partition("accuracy on test pictures, kept apart, of domains it has not seen")[2]
    assert " of 10)" in told.splitlines()[1]


def test_run_selects_on_val_and_scores_on_test(vlcs: Path, recipe: Path, tmp_path: Path) -> None:
    result = run(*studying(recipe, vlcs, tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert "over the test pictures of the test domain, kept apart from the others" in " ".join(result.output.split())
    for record in map(json.loads, (tmp_path / "out" / "records.jsonl").read_text().splitlines()):
        ((domain, (_, count)),) = record["test"].items()
        assert record["official_test"] == [domain]
        assert (count, record["val"][domain][1]) == ({"CALTECH": 6, "LABELME": 8, "SUN": 10}[domain], 4)
    oracle = run("table", tmp_path / "out", "--selection", "oracle")
    assert oracle.exit_code == 0, oracle.output
    assert "over the test pictures of the test domain, kept apart" in " ".join(oracle.output.split())


def test_empty_folders_are_told_before_the_training(tmp_path: Path) -> None:
    pictures = draw(tmp_path / "mine", ("day", "night"), ("cat", "dog"))
    (pictures / "day" / "owl").mkdir()
    told, _, after = run(*training(pictures, tmp_path / "out")).output.partition("accuracy on")
    assert f"{pictures / 'day' / 'owl'} holds no pictures" in told
    assert after


def test_a_folder_of_zips_is_taken_as_their_pictures_are(tmp_path: Path) -> None:
    pictures = draw(tmp_path / "mine", ("day", "night"), ("cat", "dog"))
    for domain in ("day", "night"):
        shutil.make_archive(str(tmp_path / "zips" / domain), "zip", pictures, domain)
    told = [run(*training(source, tmp_path / f"of_{source.name}")) for source in (pictures, tmp_path / "zips")]
    assert [result.exit_code for result in told] == [0, 0], told[1].output
    of_folder, of_zips = (result.output.partition("accuracy on")[2].split("\n\n")[0] for result in told)
    assert of_folder == of_zips != ""


@pytest.mark.parametrize("domains", [PACS, (*PACS[:3], "clipart")], ids=["pacs", "almost"])
def test_pacs_as_any_folder_is_told_to_be_unchecked(tmp_path: Path, domains: tuple[str, ...]) -> None:
    pictures = draw(tmp_path / "mine", domains, ("dog", "horse"), count=3)
    result = run(*training(pictures, tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert ("efdm dg run with a recipe for pacs" in result.output) == (domains == PACS)
