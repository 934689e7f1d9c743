import csv
from pathlib import Path

import pytest
from dg_commands import draw, run
from rich.console import Console
from runs import lines

from efdm.apps.cli import printing, recognition_printing
from efdm.apps.cli.dg import predict as command
from efdm.dg import load_classifier, predictions
from efdm.lab.report import Table


def test_predictions_agree_with_the_evaluation(trained: Path, pictures: Path, tmp_path: Path) -> None:
    result = run(
        "predict", trained / "model.safetensors", pictures / "rain", "--labels", "folders", "-o", tmp_path / "p.csv"
    )
    correct, count = lines(trained / "records.jsonl")[-1]["test"]["rain"]
    assert f"{100 * correct / count:.1f} %  rain ({correct} of {count})" in result.output
    assert "%  all (" not in result.output
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert [row["picture"] for row in rows][:2] == ["cat/0.png", "cat/1.png"]
    assert {row["domain"] for row in rows} == {"rain"}
    assert sum(row["class"] == row["label"] for row in rows) == correct
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


def test_accuracy_is_printed_per_domain_and_training_domains_come_with_a_warning(
    trained: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("predict", trained, pictures, "--labels", "folders")
    assert all(f"%  {name} (" in result.output for name in ("day", "night", "rain", "all"))
    assert "accuracy on training domains (day, night)" in result.output
    files = [pictures / "rain" / "cat" / "0.png", pictures / "rain" / "dog" / "1.png"]
    monkeypatch.setattr(printing.console, "width", 40)
    result = run("predict", trained, *files, "--labels", "folders")
    assert str(files[0]) in result.output  # lines are not wrapped
    assert "of 2)" in result.output
    assert "training domains" not in result.output
    assert "accuracy" not in run("predict", trained, pictures / "day").output


def test_files_hold_the_probability_of_every_class(trained: Path, pictures: Path, tmp_path: Path) -> None:
    run("predict", trained, pictures / "rain", "-o", tmp_path / "p.csv")
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    assert list(rows[0]) == ["picture", "class", "probability", "p_cat", "p_dog"]
    for row in rows:
        assert abs(float(row["p_cat"]) + float(row["p_dog"]) - 1) < 2e-4
        assert row["probability"] == row[f"p_{row['class']}"]


def test_long_names_are_folded_in_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = f"folder/{'long-name-' * 10}.png"
    with (tmp_path / "screen").open("w") as file:
        terminal = Console(file=file, force_terminal=True, width=60, color_system=None)
        monkeypatch.setattr(recognition_printing, "console", terminal)
        recognition_printing.print_tables([Table("", ["picture", "class", "probability"], [[name, "dog", "99%"]], [])])
    screen = (tmp_path / "screen").read_text()
    assert "99%" in screen
    assert name in "".join(line.split()[0] for line in screen.splitlines() if line.strip())


def test_pictures_are_read_at_the_stored_size_of_the_model(
    trained: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, sizes = predictions.decode_items, list[int]()
    monkeypatch.setattr(command, "load_classifier", lambda *a: load_classifier(*a)._replace(stored_size=20))
    monkeypatch.setattr(predictions, "decode_items", lambda *a, size: sizes.append(size) or original(*a, size=size))
    run("predict", trained, pictures / "rain")
    assert sizes == [20]


def test_damaged_pictures_are_skipped_and_set_the_exit_code(
    trained: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "[torn].png").write_bytes(b"PNG")
    assert "[torn].png" in run("predict", trained, tmp_path, code=2).output
    good = pictures / "day" / "cat" / "0.png"
    (tmp_path / "cat" / "good.png").write_bytes(good.read_bytes())
    monkeypatch.setattr(predictions, "CHUNK", 1)
    assert "1 of 2 pictures could not be read" in run("predict", trained, tmp_path, "-o", tmp_path / "p.csv", code=1).output
    assert [row["picture"] for row in csv.DictReader((tmp_path / "p.csv").open())] == ["cat/good.png"]


def test_wrong_arguments_are_named(trained: Path, pictures: Path, tmp_path: Path) -> None:
    other = draw(tmp_path / "other", ("day",), ("cow",), 1)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    for arguments, message in (
        ((trained, other, "--labels", "folders"), "cow"),
        ((trained, tmp_path / "nowhere"), "nowhere"),
        ((tmp_path / "model.safetensors", pictures), "safetensors"),
        ((tmp_path / "nowhere", pictures), "nowhere"),
        ((trained, pictures, "--labels", "yes"), "--labels"),
        ((trained, pictures, "-o", tmp_path / "p.xlsx"), ".csv"),
    ):
        result = run("predict", *arguments, code=2)
        assert message in result.output
