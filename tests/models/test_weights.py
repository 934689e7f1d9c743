from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path

import pytest
import torch
from training import numbered_vgg

from efdm.models import NETWORKS, build
from efdm.models import weights as module
from efdm.models.weights import (
    WEIGHTS,
    MissingWeights,
    checksum,
    find,
    find_checked,
    fits_table,
    folders,
    load_encoder,
    pretrained,
    read,
)


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_row_says_what_it_is(name: str) -> None:
    row = WEIGHTS[name]
    assert row.about
    assert row.source
    assert row.licence
    assert row.files
    assert row.place in ("user", "package")
    assert all(Path(f).suffix in (".pth", ".safetensors") for f in row.files)


@pytest.mark.parametrize("name", [n for n, row in WEIGHTS.items() if row.place == "package"])
def test_shipped_files_are_the_ones_in_the_table(name: str) -> None:
    try:
        file = find(name)
    except MissingWeights:
        pytest.skip("not in this copy")
    assert checksum(file) == WEIGHTS[name].sha256


def test_what_is_offered_is_in_the_tables() -> None:
    for name, row in NETWORKS.items():
        assert row.name == build(name).name == name
        assert row.matcher in row.weights
        assert {*row.weights.values(), row.encoder or "small"} <= set(WEIGHTS)


# --- finding ---------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named_with_its_folder_and_source(folder: Path) -> None:
    with pytest.raises(MissingWeights) as caught:
        find("vgg19-normalised")
    sentence = str(caught.value)
    assert "vgg_normalised.pth" in sentence
    assert str(folder) in sentence
    assert WEIGHTS["vgg19-normalised"].source in sentence
    assert "EFDM_WEIGHTS" in sentence


@pytest.mark.parametrize("name", [n for n, row in WEIGHTS.items() if row.place == "user"])
def test_a_missing_file_is_told_with_every_name_that_would_be_found(folder: Path, name: str) -> None:
    with pytest.raises(MissingWeights) as caught:
        find(name)
    assert " or ".join(WEIGHTS[name].files) in str(caught.value)
    assert ("get it from" in str(caught.value)) == (len(WEIGHTS[name].files) == 1)
    assert caught.value.weight == name  # for a command to add its option
    assert WEIGHTS[name].argument
    (folder / WEIGHTS[name].files[-1]).touch()
    assert find(name) == folder / WEIGHTS[name].files[-1]


@pytest.mark.parametrize("name", ["vgg16", "vgg19"])
def test_what_a_network_misses_is_told_with_its_argument(folder: Path, name: str) -> None:
    with pytest.raises(MissingWeights) as caught:
        pretrained(name)
    argument = str(caught.value).removeprefix(f"{caught.value.sentence}, or give its path as ")
    assert argument == {"vgg16": "vgg", "vgg19": "weights"}[name]
    with pytest.raises(MissingWeights, match=r"there is no file none\.pth"):  # what is told can be done
        pretrained(name, **{argument: "none.pth"})


def test_without_the_variable_our_cache_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EFDM_WEIGHTS")
    assert folders()[0] == folder.parent / "cache" / "efdm" / "weights"
    with pytest.raises(MissingWeights, match=r"cache.efdm.weights"):
        find("vgg16")


def test_the_folder_in_the_variable_goes_first(folder: Path) -> None:
    elsewhere = folder.parent / "torch" / "hub" / "checkpoints"
    elsewhere.mkdir(parents=True)
    (elsewhere / "vgg16-397923af.pth").touch()
    assert find("vgg16") == elsewhere / "vgg16-397923af.pth"  # torch's own downloads
    (folder / "vgg16.safetensors").touch()
    assert find("vgg16") == folder / "vgg16.safetensors"  # a second name, but the first folder
    given = folder.parent / "given.pth"
    given.touch()
    assert find("vgg16", given) == given


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("vgg13", None, "'vgg13' is not a known weight; known are small, "),
        ("vgg16", "nowhere.pth", "there is no file nowhere.pth with the weights of vgg16"),
    ],
)
def test_wrong_names_and_paths_are_told(name: str, path: str | None, message: str) -> None:
    with pytest.raises((ValueError, MissingWeights)) as caught:
        find(name, path)
    assert message in str(caught.value)


def test_an_installation_without_its_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.resources, "files", lambda _: tmp_path)
    with pytest.raises(MissingWeights, match=r"the package has no small\.safetensors"):
        find("small")


# --- the right file --------------------------------------------------------------------------------------------------


def test_a_file_with_an_official_name_must_be_that_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official = folder / WEIGHTS["vgg16"].files[0]
    torch.save(numbered_vgg("vgg16", blocks=1), official)
    for given in (None, official):
        with pytest.raises(ValueError, match=r"vgg16-397923af\.pth is not what its name says.*get it again from https"):
            load_encoder("vgg16", "relu1_1", path=given)
    assert not fits_table("vgg16", official)
    right = {**WEIGHTS, "vgg16": dataclasses.replace(WEIGHTS["vgg16"], sha256=checksum(official)[:8])}
    monkeypatch.setattr(module, "WEIGHTS", right)
    load_encoder("vgg16", "relu1_1")
    torch.save(numbered_vgg("vgg16", blocks=2), official)  # exchanged after it was found to be right
    with pytest.raises(ValueError, match="is not what its name says"):
        load_encoder("vgg16", "relu1_1")


def test_a_checksum_is_made_once_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(module, "checksum", lambda path: made.append(str(path)) or WEIGHTS["small"].sha256)
    module._remembered.cache_clear()
    for _ in range(3):
        find_checked("small")
    module._remembered.cache_clear()
    assert len(made) == 1


# --- reading ---------------------------------------------------------------------------------------------------------


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("harm",)


def test_a_pickle_with_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"conv1_1.weight": Harmful()}, "zipped.pth")
    Path("plain.pth").write_bytes(pickle.dumps({"conv1_1.weight": Harmful()}, 2))
    for name in ("zipped.pth", "plain.pth"):
        with pytest.raises(ValueError, match=f"{name} is not a file of weights that can be read safely"):
            read(name)
    assert not Path("harm").exists()


def test_what_is_not_a_dictionary_of_tensors_is_told(tmp_path: Path) -> None:
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "numbers.pth")
    (tmp_path / "text.safetensors").write_text("weights")
    (tmp_path / "text.pth").write_text("weights")
    for name in ("list.pth", "numbers.pth"):
        found = {"list.pth": "a list", "numbers.pth": r"'epoch' \(int\)"}[name]
        with pytest.raises(
            ValueError, match=rf"does not hold a dictionary of tensors, but {found}; .*model\.state_dict\(\)"
        ):
            read(tmp_path / name)
    for name in ("text.safetensors", "text.pth"):
        with pytest.raises(ValueError, match="is not a file of weights"):
            read(tmp_path / name)
    for name in ("absent.pth", "absent.safetensors"):
        with pytest.raises(MissingWeights, match="there is no file"):
            read(tmp_path / name)


@pytest.mark.parametrize("within", ["state_dict", "model"])
def test_a_checkpoint_of_a_training_is_opened(tmp_path: Path, within: str) -> None:
    torch.save({"optimizer": {"b": 1}, within: {"a": torch.ones(2)}, "epoch": 3}, tmp_path / "checkpoint.pth")
    assert list(read(tmp_path / "checkpoint.pth")) == ["a"]
