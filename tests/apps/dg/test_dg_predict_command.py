from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from dg_commands import draw, run

from efdm.apps import dg_predict


def test_predictions_agree_with_the_evaluation(trained: Path, pictures: Path, tmp_path: Path) -> None:
    result = run(
        "predict", trained / "model.safetensors", pictures / "rain", "--labels", "folders", "-o", tmp_path / "p.csv"
    )
    assert result.exit_code == 0, result.output
    correct, count = json.loads((trained / "records.jsonl").read_text().splitlines()[-1])["test"]["rain"]
    assert f"{100 * correct / count:.1f} %  all ({correct} of {count})" in result.output
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
    for arguments, message in (
        ((trained, other, "--labels", "folders"), "cow is no class of this model, which knows cat, dog"),
        ((trained, tmp_path / "nowhere"), "nowhere"),
        ((tmp_path / "model.safetensors", pictures), "cannot be read as safetensors"),
        ((tmp_path / "nowhere", pictures), "there is no file"),
        ((trained, pictures, "--labels", "yes"), "--labels='yes' is not one of 'none', 'folders'"),
        ((trained, pictures, "-o", pictures / "day" / "cat" / "0.png"), "choose a file for the predictions"),
    ):
        result = run("predict", *arguments)
        assert result.exit_code == 2, result.output
        assert message in result.output
