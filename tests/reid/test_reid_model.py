import dataclasses
from pathlib import Path

import pytest
import torch
from reid_runs import SIZE, settings

from efdm.dg.classifier import save_classifier
from efdm.dg.settings import Settings as ClassifierSettings
from efdm.models.backbones import build_backbone
from efdm.reid.model import load_embedder, save_embedder
from efdm.reid.settings import Settings


def test_a_network_survives_saving_and_loading(tmp_path: Path) -> None:
    model, path = build_backbone("tiny", 7), tmp_path / "model.safetensors"
    model(torch.rand(4, 3, *SIZE))  # updates the batch norm
    wanted = dataclasses.replace(settings(method="efdmix"), weights="/home/someone/start.pth")
    save_embedder(model, path, people=7, settings=wanted)
    for place in (path, tmp_path):
        found, size, stored = load_embedder(place)
        assert (size, Settings(**stored)) == (SIZE, dataclasses.replace(wanted, weights="start.pth"))
        assert not found.training
        images = torch.rand(2, 3, *SIZE)
        torch.testing.assert_close(found(images), model.eval()(images))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"a finished run contains an embedding network as model\.safetensors"):
        load_embedder(tmp_path)
    wanted = ClassifierSettings("digits", ("ink",), ("outline",), backbone="tiny", size=32)
    save_classifier(build_backbone("tiny", 2), tmp_path / "model.safetensors", classes=["a", "b"], settings=wanted)
    with pytest.raises(ValueError, match="not an embedding network"):
        load_embedder(tmp_path)
