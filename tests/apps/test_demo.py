from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from efdm.apps.cli import demo as showing
from efdm.data import read_picture
from efdm.models import VGG, build
from efdm.models.weights import read, save_encoder, save_network
from efdm.style.stylizer import Stylizer

app = typer.Typer()
app.command()(showing.demo)
SIDE = 32


def test_the_demo_writes_its_sheets_and_says_where(tmp_path: Path) -> None:
    weights = tmp_path / "network.safetensors"
    save_network(build("small"), weights, {})
    arguments = ["-o", str(tmp_path / "sheets"), "--weights", str(weights), "--side", str(SIDE), "--device", "cpu"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "sheets").iterdir()) == sorted(showing.SHEETS)
    for name in showing.SHEETS:
        assert str(tmp_path / "sheets" / name) in result.output
    contact = read_picture(tmp_path / "sheets" / "contact-sheet.png").rgb
    assert contact.shape[2] > (len(showing.PAINTINGS) + 1) * SIDE
    assert contact.shape[1] > (len(showing.PHOTOS) + 1) * SIDE


def test_progress_counts_every_picture(tmp_path: Path) -> None:
    heard: list[str] = []
    showing.make_sheets(Stylizer(build("small"), "cpu"), tmp_path, SIDE, heard.append)
    assert len(heard) == sum(page.pictures + 1 for page in showing.SHEETS.values())


def test_the_corners_of_the_grid_are_the_styles_alone() -> None:
    torch.manual_seed(0)
    stylizer = Stylizer(build("small"), "cpu")
    shop = showing.Workshop(stylizer, SIDE)
    made = list(showing.four_styles(shop))[:-1]
    for index, name in zip((0, 4, 20, 24), showing.CORNERS, strict=True):
        alone = stylizer.stylize(shop.photo(showing.CORNER_PHOTO), shop.look(name))
        assert (made[index] - alone).abs().mean() < 1e-3


def test_a_missing_network_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["-o", str(tmp_path), "--weights", str(tmp_path / "none.safetensors")])
    assert result.exit_code == 2
    assert "there is no file" in " ".join(result.output.split())


# --- which network ---------------------------------------------------------------------------------------------------


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a decoder of vgg16, one that says nothing of itself, and an encoder; nothing else can be looked up."""
    save_network(build("vgg16"), tmp_path / "network.safetensors", {})
    save_file(read(tmp_path / "network.safetensors"), tmp_path / "bare.safetensors")
    save_encoder(VGG("vgg16"), tmp_path / "encoder.safetensors")
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [tmp_path / "nowhere"])
    return tmp_path


def run(*arguments: object):
    given = [str(a) for a in arguments]
    return CliRunner().invoke(app, ["-o", "sheets", "--device", "cpu", *given], env={"COLUMNS": "300"})


def test_the_file_of_a_training_says_which_model_it_is(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(showing, "make_sheets", lambda stylizer, *_: shown.append(stylizer.network.name) or [])
    vgg = ("--vgg", deep / "encoder.safetensors")
    for arguments in (
        (*vgg, "--weights", deep / "network.safetensors"),
        (*vgg, "--weights", deep / "bare.safetensors", "--model", "vgg16"),
        (),
    ):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
    assert shown == ["vgg16", "vgg16", "small"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--weights", "bare.safetensors"), "add --model, one of small, vgg16, vgg19"),
        (("--model", "vgg61"), "--model='vgg61' is not one of 'small'"),
        (("--weights", "network.safetensors"), "or give its path with --vgg FILE\n"),
        (("--model", "vgg19"), "or give its path with --weights FILE\n"),
    ],
    ids=["nameless", "unknown", "no_encoder", "no_decoder"],
)
def test_what_is_missing_is_told_with_its_option(
    deep: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(deep)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
