from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from dg_commands import RECIPE, draw, run, studying, training

from efdm.apps import dg_open
from efdm.data import datasets
from efdm.data.pacs import CLASSES, PICTURES
from efdm.dg import METHODS
from efdm.lab import recipes


def test_the_list_has_every_recipe_and_method_with_its_source() -> None:
    result = run("list")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    for name in recipes():
        assert any(line.split()[:1] == [name] for line in lines), name
    for name, method in METHODS.items():
        (line,) = (line for line in lines if line.split()[:1] == [name])
        assert all(f"{option}={value}" in line for option, value in method.options.items()), line
        assert f"{method.batches}; {method.source}" in line, line
    assert "vgg16-gap" in result.output
    assert "timm" in result.output


@pytest.mark.parametrize("command", ["demo", "train", "predict", "run", "table", "analyse", "list"])
def test_every_command_explains_itself_and_every_option(command: str) -> None:
    assert command in run("--help").output
    result = run(command, "--help", width=400, TERM="dumb")
    assert result.exit_code == 0
    options = [line for line in result.output.splitlines() if line.strip(" │*").startswith("--")]
    assert options
    assert all(len(line.split()) > 3 for line in options)


def test_advice_names_options_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = draw(tmp_path / "PACS", tuple(PICTURES), CLASSES[:1], 1)
    (tmp_path / "small.py").write_text(RECIPE.format(data="pacs"))
    start = ["run", tmp_path / "small.py", "--data", source, "-o", tmp_path / "out", "--device", "cpu"]
    told = run(*start).output
    assert "--lists FOLDER" in told
    assert "--split own" in told
    assert "--copy partial" in run(*start, "--split", "own").output
    timm = pytest.importorskip("timm")

    def offline(name: str, **_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr("efdm.models.backbones._answers", lambda _: False)
    told = run("train", "--data", source, "-o", tmp_path / "out").output
    assert "give it as --weights FILE" in told


def commands_that_write(trained: Path, pictures: Path, recipe: Path, out: Path) -> list[list[object]]:
    return [
        training(pictures, out),
        studying(recipe, pictures, out),
        ["demo", "-o", out, "--iterations", 1],
        ["analyse", "ties", "--checkpoint", trained, "--data", pictures, "-o", out],
    ]


def test_a_closed_folder_is_told_of_before_pictures_are_read(
    trained: Path, pictures: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("pictures were read"))
    monkeypatch.setattr(dg_open.os, "access", lambda path, _: Path(path) != tmp_path)  # root may write everywhere
    out = tmp_path / "deep" / "run"
    for command in commands_that_write(trained, pictures, recipe, out):
        result = run(*command)
        assert result.exit_code == 2
        assert f"{out} cannot be written: permission denied" in result.output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError, "cannot be written: permission denied"),
        (FileNotFoundError, "cannot be written (No such file or directory)"),
    ],
)
def test_a_folder_that_cannot_be_made_is_one_sentence(
    trained: Path, pictures: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, message: str
) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    out, usual = tmp_path / "deep" / "out", Path.mkdir
    number = {PermissionError: errno.EACCES, FileNotFoundError: errno.ENOENT}[error]

    def mkdir(path: Path, *more: Any, **options: Any) -> None:
        if path == out.parent or path == out:
            raise error(number, os.strerror(number), str(path))
        usual(path, *more, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    for command in commands_that_write(trained, pictures, recipe, out):
        result = run(*command)
        assert result.exit_code == 2, result.output
        assert f"{out} {message}; choose another folder" in result.output


def test_classes_that_differ_between_domains_are_named(pictures: Path, recipe: Path, tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("photo", "sketch"), ("circle", "square"), 4)
    (source / "sketch" / "circle").rename(source / "sketch" / "Circles")
    result = run(*training(source, tmp_path / "out", test_domains="sketch", method="erm", batch=4))
    assert result.exit_code == 0, result.output
    first, _, warning, *_ = (line for line in result.output.splitlines() if not line.startswith("reading"))
    assert "3 classes (Circles, circle, square)" in first
    assert "sketch has no circle; only sketch has Circles" in warning
    result = run(*studying(recipe, source, tmp_path / "study"))
    assert "photo has no Circles; sketch has no circle" in result.output
    assert "classes differ" not in run(*training(pictures, tmp_path / "even")).output


def test_a_model_that_does_not_take_the_size_is_told_of_at_once(
    recipe: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: pytest.fail("pictures were read"))
    vit = "vit_tiny_patch16_224"
    for option, command in {
        "--size": training(pictures, tmp_path / "out", backbone=vit, size=64),
        "--set size=N": studying(recipe, pictures, tmp_path / "out", "--set", f"backbone={vit}"),
    }.items():
        result = run(*command)
        assert result.exit_code == 2, result.output
        assert f"{vit} cannot take pictures of" in result.output
        assert f"change it with {option}" in result.output
        assert not (tmp_path / "out").exists()


def test_a_folder_of_several_trainings_names_those_inside(trained: Path, pictures: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "many" / "runs" / name).mkdir(parents=True)
        for file in ("model.safetensors", "settings.json"):
            (tmp_path / "many" / "runs" / name / file).write_bytes((trained / file).read_bytes())
    for command in (
        ("predict", tmp_path / "many", pictures),
        ("analyse", "ties", "--checkpoint", tmp_path / "many", "-o", "x"),
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert "has no model itself" in result.output
        assert f"{tmp_path / 'many' / 'runs' / 'a'} (efdmix, tested on rain, seed 0)" in result.output
