from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commands import invoke
from safetensors.torch import save_file

from efdm.data import read_picture
from efdm.models import VGG, build
from efdm.models.weights import read, save_encoder, save_network
from efdm.progress import Progress
from efdm.style import demo
from efdm.style.stylizer import Stylizer

SIDE = 32


def run(*arguments: object, out: Path | str = "sheets", code: int = 0):
    return invoke("demo", "-o", out, "--device", "cpu", *arguments, code=code)


def test_the_command_writes_the_sheets_and_prints_their_paths(tmp_path: Path) -> None:
    weights, out = tmp_path / "network.safetensors", tmp_path / "sheets"
    save_network(build("small"), weights, {})
    result = run("--weights", weights, "--side", SIDE, out=out)
    assert sorted(p.name for p in out.iterdir()) == sorted(demo.SHEETS)
    assert all(str(out / name) in result.output for name in demo.SHEETS)
    assert f"stylizing: {demo.PICTURES}/{demo.PICTURES}" in result.output
    contact = read_picture(out / "contact-sheet.png").rgb
    assert contact.shape[2] > (len(demo.PAINTINGS) + 1) * SIDE
    assert contact.shape[1] > (len(demo.PHOTOS) + 1) * SIDE


def test_the_corners_of_the_grid_are_single_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    made, reports = list[torch.Tensor](), list[Progress]()
    stylize = demo.Studio.stylize
    monkeypatch.setattr(demo.Studio, "stylize", lambda *args: made.append(stylize(*args)) or made[-1])
    studio = demo.Studio(Stylizer(build("small"), "cpu"), SIDE, reports.append)
    demo.four_styles(studio)
    for index, name in zip((0, 4, 20, 24), demo.CORNERS, strict=True):
        single = stylize(studio, demo.CORNER_PHOTO, studio.look(name))
        assert (made[index] - single).abs().mean() < 1e-3
    assert [report.done for report in reports] == list(range(1, demo.STEPS**2 + 5))


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a vgg16 decoder, the same without metadata, and an encoder. No other weights can be found."""
    save_network(build("vgg16"), tmp_path / "network.safetensors", {})
    save_file(read(tmp_path / "network.safetensors"), tmp_path / "bare.safetensors")
    save_encoder(VGG("vgg16"), tmp_path / "encoder.safetensors")
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [tmp_path / "nowhere"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_model_is_taken_from_the_weights(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    stub = lambda stylizer, *_, **__: seen.append(stylizer.network.name) or []  # noqa: E731
    monkeypatch.setattr("efdm.apps.cli.demo.write_sheets", stub)
    vgg = ("--vgg", "encoder.safetensors")
    for arguments in (
        (*vgg, "--weights", "network.safetensors"), (*vgg, "--weights", "bare.safetensors", "--model", "vgg16"), (),
    ):  # fmt: skip
        run(*arguments)
    assert seen == ["vgg16", "vgg16", "small"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--weights", "bare.safetensors"), "one of small, vgg16, vgg19"),
        (("--weights", "none.safetensors"), "none.safetensors"),
        (("--model", "vgg61"), "'vgg61'"),
        (("--weights", "network.safetensors"), "or pass its path as vgg (--vgg)\n"),
    ],
    ids=["unnamed", "missing", "unknown", "no encoder"],
)
def test_missing_weights_are_reported_with_their_option(deep: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments, code=2)
    assert message in result.output
    assert result.output.count("\n") == 1
