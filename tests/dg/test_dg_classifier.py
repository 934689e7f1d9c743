import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from efdm.dg.classifier import Classifier, load_classifier, save_classifier
from efdm.dg.methods import attach
from efdm.dg.settings import Settings
from efdm.models.backbones import build_backbone

SETTINGS = Settings("digits", ("ink", "neon"), ("outline",), method="efdmix", backbone="tiny", size=32)


def test_a_classifier_survives_saving_and_loading(tmp_path: Path) -> None:
    model = build_backbone("tiny", 3)
    attach("efdmix", model, ["stage1"])
    model(torch.rand(4, 3, 32, 32))  # updates the batch norm
    wanted = dataclasses.replace(SETTINGS, weights="/home/someone/start.pth")
    save_classifier(model, tmp_path / "model.safetensors", classes=["a", "b", "ü"], settings=wanted)
    found, classes, size, stored, stored_size = load_classifier(tmp_path / "model.safetensors")
    assert stored_size == 32
    assert (classes, size, Settings(**stored)) == (["a", "b", "ü"], 32, dataclasses.replace(wanted, weights="start.pth"))
    assert not found.training
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(found(images), model.eval()(images))
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    assert (metadata["backbone"], metadata["method"], metadata["train_domains"]) == ("tiny", "efdmix", '["ink", "neon"]')
    assert "someone" not in str(metadata)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_equal_classifiers_are_equal_files(tmp_path: Path) -> None:
    """The order of metadata in safetensors is random otherwise."""
    model, files = build_backbone("tiny", 3), []
    for number in range(5):
        save_classifier(model, tmp_path / f"{number}", classes=["a", "b", "ü"], settings=SETTINGS)
        files.append((tmp_path / f"{number}").read_bytes())
    assert len(set(files)) == 1
    assert int.from_bytes(files[0][:8], "little") % 8 == 0  # tensors are aligned


def test_stages_come_from_the_family_of_the_model() -> None:
    models = {3: build_backbone("tiny", 2), 4: build_backbone("resnet18", 2), 0: torch.nn.Sequential(torch.nn.Linear(2, 2))}
    for count, model in models.items():
        found = Classifier(model, ["a", "b"], 32, {"stages": ["stage1"]}, 32)
        assert found.stages == tuple(f"stage{number}" for number in range(1, count + 1))


def test_files_of_other_versions_are_read(tmp_path: Path) -> None:
    """The stored size defaults to the input size, and unknown settings are accepted."""
    path = tmp_path / "model.safetensors"
    save_classifier(build_backbone("tiny", 2), path, classes=["a", "b"], settings=SETTINGS, stored_size=35)
    assert (load_classifier(path).size, load_classifier(path).stored_size) == (32, 35)
    with safe_open(path, "pt") as file:
        metadata, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del metadata["stored_size"]
    settings = {**json.loads(metadata["settings"]), "warmth": 3}
    save_file(state, path, {**metadata, "settings": json.dumps(settings)})
    assert (load_classifier(path).stored_size, load_classifier(path).settings["warmth"]) == (32, 3)
    save_file(state, path, {**metadata, "kept": "48"})  # its first name
    assert load_classifier(path).stored_size == 48


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="file not found"):
        load_classifier(tmp_path / "nothing.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"torn\.safetensors: cannot be read"):
        load_classifier(tmp_path / "torn.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="not a classifier"):
        load_classifier(tmp_path / "other.safetensors")
