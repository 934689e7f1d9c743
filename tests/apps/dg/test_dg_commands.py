import shutil
from pathlib import Path

import pytest
from dg_commands import draw, run, studying, training

from efdm.apps.cli.group import DG
from efdm.dg import METHODS
from efdm.lab import recipes
from efdm.training.folder import lock_folder


def test_the_list_has_every_recipe_and_method_with_its_source() -> None:
    result = run("list")
    lines = result.output.splitlines()
    for name in recipes("dg"):
        assert any(line.split()[:1] == [name] for line in lines), name
    for name, method in METHODS.items():
        (line,) = (line for line in lines if line.split()[:1] == [name])
        assert all(f"{option}={value}" in line for option, value in method.options.items()), line
        assert f"{method.batches}; {method.source}" in line, line
    assert "resnet50_v1" in result.output
    assert "timm" in result.output


@pytest.mark.parametrize("command", DG)
def test_every_command_and_option_has_a_help_text(command: str) -> None:
    assert f"{command} " in run("--help").output
    result = run(command, "--help", COLUMNS="400", TERM="dumb")
    assert DG[command].help.partition(".")[0] in result.output
    options = [line for line in result.output.splitlines() if line.strip(" │*").startswith("--")]
    assert options
    assert all(len(line.split()) > 3 for line in options)


@pytest.mark.usefixtures("no_reading")
def test_locked_and_read_only_folders_are_refused_before_pictures_are_read(
    pictures: Path, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "run"
    commands = [training(pictures, out), studying(recipe, pictures, out), ["demo", "-o", out, "--iterations", 1]]
    with lock_folder(out):
        for command in commands:
            assert f"another process is working in {out}" in run(*command, code=2).output
    shutil.rmtree(tmp_path / "deep")
    monkeypatch.setattr("os.access", lambda path, _: Path(path) != tmp_path)  # root may write everywhere
    for command in commands:
        assert str(out) in run(*command, code=2).output


def test_classes_that_differ_between_domains_are_named(pictures: Path, recipe: Path, tmp_path: Path) -> None:
    source = draw(tmp_path / "mine", ("photo", "sketch"), ("circle", "square"), 4)
    (source / "sketch" / "circle").rename(source / "sketch" / "Circles")
    result = run(*training(source, tmp_path / "out", test_domains="sketch", method="erm", batch=4))
    first, _, warning, *_ = (line for line in result.output.splitlines() if not line.startswith("reading"))
    assert "3 classes (Circles, circle, square)" in first
    assert "sketch has no circle; only sketch has Circles" in warning
    assert "photo has no Circles; sketch has no circle" in run(*studying(recipe, source, tmp_path / "study")).output
    assert "classes differ" not in run(*training(pictures, tmp_path / "even")).output


@pytest.mark.usefixtures("no_reading")
def test_a_model_of_another_input_size_is_refused_before_pictures_are_read(
    recipe: Path, pictures: Path, tmp_path: Path
) -> None:
    vit = "vit_tiny_patch16_224"
    for option, command in {
        "--size": training(pictures, tmp_path / "out", backbone=vit, size=64),
        "--set size": studying(recipe, pictures, tmp_path / "out", "--set", f"backbone={vit}"),
    }.items():
        result = run(*command, code=2)
        assert f"{vit} does not accept pictures of" in result.output
        assert option in result.output
        assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_reading")
@pytest.mark.parametrize(
    ("change", "expected"),
    {
        "size=[64,32]": "size must be a valid integer",
        "size=wide": "size must be a valid integer",
        "lr=fast": "lr must be a valid number",
        "batch=0": "batch must be greater",
        "seed=1": "seed cannot be overridden",
    }.items(),
)
def test_settings_of_a_recipe_are_checked_before_pictures_are_read(
    change: str, expected: str, recipe: Path, pictures: Path, tmp_path: Path
) -> None:
    command = studying(recipe, pictures, tmp_path / "out", "--set", change)
    assert expected in run(*command, code=2).output
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_reading")
def test_an_unknown_tag_of_a_timm_model_lists_the_known_ones(pictures: Path, tmp_path: Path) -> None:
    output = run(*training(pictures, tmp_path / "out", backbone="resnet18.unknown"), code=2).output
    assert "resnet18.unknown" in output
    assert "resnet18.tv_in1k" in output


def test_a_folder_of_several_runs_lists_them(trained: Path, pictures: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "many" / "runs" / name).mkdir(parents=True)
        for file in ("model.safetensors", "settings.json"):
            shutil.copy(trained / file, tmp_path / "many" / "runs" / name)
    for command in (
        ("predict", tmp_path / "many", pictures),
        ("analyse", "ties", "--checkpoint", tmp_path / "many", "-o", "x"),
    ):
        result = run(*command, code=2)
        assert "2 runs" in result.output
        assert f"{tmp_path / 'many' / 'runs' / 'a'} (efdmix-flow, tested on rain, seed 0" in result.output
