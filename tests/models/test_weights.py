"""The table of weight files: finding, checking and reading them."""

import dataclasses
import os
import pickle
from pathlib import Path

import pytest
import torch
from training import numbered_vgg

from efdm.errors import DamagedFileError
from efdm.models import NETWORKS, build
from efdm.models import weights as module
from efdm.models.weights import WEIGHTS, MissingWeights, checksum, find, fits_table, folders, load_encoder, pretrained, read


def test_networks_refer_to_rows_of_the_table() -> None:
    for name, row in NETWORKS.items():
        assert row.name == build(name).name == name
        assert {row.weights, row.encoder or "small"} <= set(WEIGHTS)


@pytest.mark.parametrize("name", [n for n, row in WEIGHTS.items() if row.place == "user"])
def test_missing_file_names_files_folder_and_source(folder: Path, name: str) -> None:
    with pytest.raises(MissingWeights) as caught:
        find(name)
    for part in (" or ".join(WEIGHTS[name].files), str(folder), WEIGHTS[name].source, "EFDM_WEIGHTS"):
        assert part in str(caught.value)
    assert caught.value.settings == (WEIGHTS[name].argument,)
    (folder / WEIGHTS[name].files[-1]).touch()
    assert find(name) == folder / WEIGHTS[name].files[-1]


def test_missing_file_names_the_argument_or_the_remedy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingWeights, match=r"or pass its path as vgg$"):
        pretrained("vgg16")
    with pytest.raises(MissingWeights, match=r"file not found: none\.pth"):
        pretrained("vgg16", vgg="none.pth")
    with pytest.raises(ValueError, match="'vgg13'"):
        find("vgg13")
    monkeypatch.setattr(module, "SHIPPED", tmp_path)
    with pytest.raises(MissingWeights, match=r"small\.safetensors; reinstall"):
        pretrained("small")


@pytest.mark.parametrize("name", [n for n, row in WEIGHTS.items() if row.place == "package" and not row.sha256])
def test_a_file_that_is_not_shipped_yet_needs_its_card(name: str) -> None:
    with pytest.raises(MissingWeights, match=f"not in the package yet; see docs/models/{WEIGHTS[name].card}"):
        find(name)


def test_folders_are_searched_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = folder.parent / "torch" / "hub" / "checkpoints"
    elsewhere.mkdir(parents=True)
    (elsewhere / "vgg16-397923af.pth").touch()
    assert find("vgg16") == elsewhere / "vgg16-397923af.pth"  # downloaded by torch.hub
    (folder / "vgg16.safetensors").touch()
    assert find("vgg16") == folder / "vgg16.safetensors"  # folders take precedence over names
    given = folder.parent / "given.pth"
    given.touch()
    assert find("vgg16", given) == given
    monkeypatch.delenv("EFDM_WEIGHTS")
    assert folders()[0] == folder.parent / "cache" / "efdm" / "weights"


def test_file_with_the_original_name_must_have_its_checksum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official = folder / WEIGHTS["vgg16"].files[0]
    torch.save(numbered_vgg("vgg16", blocks=1), official)
    for given in (None, official):
        with pytest.raises(DamagedFileError, match=r"vgg16-397923af\.pth.*SHA-256.*https"):
            load_encoder("vgg16", "relu1_1", path=given)
    assert not fits_table("vgg16", official)
    right = {**WEIGHTS, "vgg16": dataclasses.replace(WEIGHTS["vgg16"], sha256=checksum(official)[:8])}
    monkeypatch.setattr(module, "WEIGHTS", right)
    module._sha256.cache_clear()
    for _ in range(3):
        load_encoder("vgg16", "relu1_1")
    assert module._sha256.cache_info().misses == 1
    torch.save(numbered_vgg("vgg16", blocks=2), official)  # replaced after a successful check
    with pytest.raises(DamagedFileError, match="SHA-256"):
        load_encoder("vgg16", "relu1_1")


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm",)


def test_pickle_with_code_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"conv1_1.weight": Harmful()}, "zipped.pth")
    Path("plain.pth").write_bytes(pickle.dumps({"conv1_1.weight": Harmful()}, 2))
    for name in ("zipped.pth", "plain.pth"):
        with pytest.raises(DamagedFileError, match=name):
            read(name)
    assert not Path("harm").exists()


def test_files_without_a_state_dict(tmp_path: Path) -> None:
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "numbers.pth")
    (tmp_path / "text.pth").write_text("weights")
    for name, found in (("list.pth", "a list"), ("numbers.pth", r"'epoch' \(int\)")):
        with pytest.raises(ValueError, match=rf"{name} must hold a state dict.*{found}"):
            read(tmp_path / name)
    for within in ("state_dict", "model"):
        torch.save({"optimizer": {"b": 1}, within: {"a": torch.ones(2)}, "epoch": 3}, tmp_path / "checkpoint.pth")
        assert list(read(tmp_path / "checkpoint.pth")) == ["a"]
    with pytest.raises(DamagedFileError, match=r"text\.pth"):
        read(tmp_path / "text.pth")
    for name in ("absent.pth", "absent.safetensors"):
        with pytest.raises(MissingWeights, match="file not found"):
            read(tmp_path / name)
