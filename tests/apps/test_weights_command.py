from pathlib import Path

import pytest
import torch
from commands import invoke
from safetensors.torch import save_file
from training import noise_pictures, numbered_vgg

from efdm.models import VGG, mean_activations
from efdm.models.weights import WEIGHTS, load_normalized_encoder
from efdm.style import encoder as encoders


@pytest.fixture(autouse=True)
def _shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two blocks only."""
    monkeypatch.setattr(encoders, "DEEPEST", "relu2_1")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    noise_pictures(tmp_path / "photos", 3, seed=1)
    save_file(numbered_vgg("vgg16", blocks=4), tmp_path / "vgg.safetensors")
    return tmp_path


def run(place: Path, out: Path, code: int = 0, **changes: str):
    given = {"content": str(place / "photos"), "vgg": str(place / "vgg.safetensors"), **changes}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    return invoke("weights", "normalize", "vgg16", "-o", out, *words, code=code, COLUMNS="400")


def test_a_normalized_encoder_is_written(place: Path) -> None:
    run(place, place / "deep" / "out.safetensors")
    encoder = load_normalized_encoder(VGG("vgg16", "relu2_1"), path=place / "deep" / "out.safetensors")
    means = mean_activations(encoder, [torch.rand(2, 3, 40, 40) * 0.5 + 0.25])
    assert all(0.2 < mean.median() < 5 for mean in means.values())


def test_the_imagenet_file_is_not_overwritten(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = (place / "vgg.safetensors").rename(place / "vgg16.safetensors")
    monkeypatch.setenv("EFDM_WEIGHTS", str(place))
    before = file.read_bytes()
    assert "would overwrite" in run(place, file, vgg="", code=2).output  # found by name
    assert file.read_bytes() == before


def test_invalid_outputs(place: Path) -> None:
    assert "is a folder" in run(place, place / "photos", code=2).output
    picture = place / "photos" / "0.png"
    before = picture.read_bytes()
    assert "would overwrite" in run(place, picture, content=str(picture), code=2).output
    assert picture.read_bytes() == before


def test_a_missing_file_is_reported_with_its_option(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [place / "nowhere"])
    assert run(place, place / "out.safetensors", vgg="", code=2).output.endswith("or pass its path as vgg (--vgg)\n")
    result = invoke("weights", "where", "vgg16", code=2)
    assert "EFDM_WEIGHTS" in result.output
    assert "--vgg" not in result.output


def test_all_weights_are_listed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("efdm.models.weights.folders", lambda: [place / "nowhere"])
    result = invoke("weights", "list", COLUMNS="400")
    assert result.output == invoke("weights", COLUMNS="400").output
    assert [name for name in WEIGHTS if name not in result.output] == []
    assert "missing" in result.output
    assert invoke("weights", "where", "small").output.strip().endswith("small.safetensors")
