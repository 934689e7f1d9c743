from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from dg_commands import draw, run

from efdm.apps import dg_predict
from efdm.dg import load_classifier


def test_predictions_agree_with_the_evaluation(trained: Path, pictures: Path, tmp_path: Path) -> None:
    result = run(
        "predict", trained / "model.safetensors", pictures / "rain", "--labels", "folders", "-o", tmp_path / "p.csv"
    )
    assert result.exit_code == 0, result.output
    correct, count = json.loads((trained / "records.jsonl").read_text().splitlines()[-1])["test"]["rain"]
    assert f"{100 * correct / count:.1f} %  rain ({correct} of {count})" in result.output
    assert "%  all (" not in result.output  # it is the only one
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert [row["picture"] for row in rows][:2] == ["cat/0.png", "cat/1.png"]
    assert {row["domain"] for row in rows} == {"rain"}
    assert sum(row["class"] == row["label"] for row in rows) == correct
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


def test_accuracy_of_each_domain_and_of_single_files(trained: Path, pictures: Path) -> None:
    result = run("predict", trained, pictures, "--labels", "folders")
    assert all(f"%  {name} (" in result.output for name in ("day", "night", "rain", "all"))
    files = [pictures / "day" / "cat" / "0.png", pictures / "rain" / "dog" / "1.png"]
    result = run("predict", trained, *files, "--labels", "folders", width=400)
    assert result.exit_code == 0, result.output
    assert str(files[0]) in result.output
    assert "of 2)" in result.output
    assert "accuracy" not in run("predict", trained, files[0]).output


def test_all_probabilities_are_a_choice(trained: Path, pictures: Path, tmp_path: Path) -> None:
    start = ("predict", trained, pictures / "rain", "--columns", "all")
    result = run(*start)
    assert result.exit_code == 0, result.output
    assert re.search(r"picture +class +sure +cat +dog", result.output)
    assert run(*start, "-o", tmp_path / "p.csv").exit_code == 0
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert list(rows[0]) == ["picture", "class", "probability", "p_cat", "p_dog"]
    for row in rows:
        assert abs(float(row["p_cat"]) + float(row["p_dog"]) - 1) < 2e-4
        assert row["probability"] == row[f"p_{row['class']}"]


def test_a_json_file_has_what_the_accuracy_is_made_of(trained: Path, pictures: Path, tmp_path: Path) -> None:
    command = ("predict", trained, pictures, "-o", tmp_path / "p.json")
    assert run(*command).exit_code == 0
    told = json.loads((tmp_path / "p.json").read_text())
    assert (list(told), len(told["predictions"])) == (["classes", "learnt_from", "predictions"], 36)
    assert set(told["predictions"][0]) == {"picture", "class", "probability"}
    assert run(*command, "--labels", "folders", "--columns", "all").exit_code == 0
    told = json.loads((tmp_path / "p.json").read_text())
    rows = told["predictions"]
    right = sum(row["class"] == row["label"] for row in rows)
    assert told["accuracy"]["all"] == [right, 36]
    assert {name: count for name, (_, count) in told["accuracy"]["domains"].items()} == {"day": 12, "night": 12, "rain": 12}
    for label in ("cat", "dog"):
        assert told["accuracy"]["classes"][label] == [told["confusion"][label].get(label, 0), 18]
        assert sum(told["confusion"][label].values()) == 18
    assert rows[0]["probabilities"][rows[0]["class"]] == rows[0]["probability"]


def test_accuracy_in_domains_that_were_learnt_is_told_to_be_that(trained: Path, pictures: Path) -> None:
    told = "the model has learnt from day, night: what it has right there says nothing of a new domain"
    assert told in run("predict", trained, pictures, "--labels", "folders").output
    assert "has learnt from" not in run("predict", trained, pictures / "rain", "--labels", "folders").output
    assert "has learnt from" not in run("predict", trained, pictures / "day").output


def test_pictures_go_the_way_that_they_went_in_training(
    trained: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the size they were kept at, and from there to the size that the model sees."""
    usual, sizes = dg_predict.decode_items, list[int]()
    monkeypatch.setattr(dg_predict, "load_classifier", lambda *a: load_classifier(*a)._replace(stored_size=20))
    monkeypatch.setattr(dg_predict, "decode_items", lambda *a, size: sizes.append(size) or usual(*a, size=size))
    assert run("predict", trained, pictures / "rain").exit_code == 0
    assert sizes == [20]


def test_damaged_pictures_are_skipped_and_the_exit_code_tells(
    trained: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "[torn].png").write_bytes(b"PNG")
    result = run("predict", trained, tmp_path)
    assert result.exit_code == 2
    assert "[torn].png is not a picture" in result.output
    good = pictures / "day" / "cat" / "0.png"
    (tmp_path / "cat" / "good.png").write_bytes(good.read_bytes())
    monkeypatch.setattr(dg_predict, "AT_ONCE", 1)
    result = run("predict", trained, tmp_path, "-o", tmp_path / "p.csv")
    assert result.exit_code == 1
    assert "1 of 2 pictures could not be read" in result.output
    assert [row["picture"] for row in csv.DictReader((tmp_path / "p.csv").open())] == ["cat/good.png"]


def test_what_is_wrong_with_a_prediction_is_one_sentence(trained: Path, pictures: Path, tmp_path: Path) -> None:
    other = draw(tmp_path / "other", ("day",), ("cow",), 1)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    (tmp_path / "cat.csv").mkdir()
    for arguments, message in (
        ((trained, other, "--labels", "folders"), "cow is no class of this model, which knows cat, dog"),
        ((trained, tmp_path / "nowhere"), "nowhere"),
        ((tmp_path / "model.safetensors", pictures), "cannot be read as safetensors"),
        ((tmp_path / "nowhere", pictures), "there is no file"),
        ((trained, pictures, "--labels", "yes"), "--labels='yes' is not one of 'none', 'folders'"),
        ((trained, pictures, "--columns", "both"), "--columns='both' is not one of 'top', 'all'"),
        ((trained, pictures, "-o", tmp_path / "p.xlsx"), "end it in one of .csv, .json"),
        ((trained, pictures, "-o", tmp_path / "cat.csv"), "cat.csv is a folder or one of the pictures"),
    ):
        result = run("predict", *arguments)
        assert result.exit_code == 2, result.output
        assert message in result.output
