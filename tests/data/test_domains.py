import random
import shutil
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from trees import zip_folder

from efdm.data import PictureError, memory
from efdm.data.domains import DomainSet, load_domains
from efdm.data.layouts import key
from efdm.errors import SettingError

VAL_OF_SEED_3 = ["art/cat/001", "art/dog/001", "art/owl/004", "photo/cat/004", "photo/dog/003", "photo/owl/003"]
DOMAINS, CLASSES = ("art", "photo"), ("cat", "dog", "owl")


def fill(root: Path, each: int = 5) -> dict[str, int]:
    """Write a small set in which every picture has its own gray, and return the grays by name."""
    grays = {}
    for domain, label, number in product(DOMAINS, CLASSES, range(each)):
        name = f"{domain}/{label}/{number:03d}.png"
        grays[name] = len(grays)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10, 12), (grays[name],) * 3).save(root / name)
    return grays


def named(data: DomainSet, split: str) -> set[str]:
    return {data.names[i] for i in data.select(split=split).tolist()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path / "set")
    return tmp_path / "set"


def test_pictures_have_the_right_labels_and_domains(tmp_path: Path) -> None:
    grays = fill(tmp_path)
    calls = []
    data = load_domains(tmp_path, size=7, workers=3, progress=lambda at: calls.append((at.done, at.total)))
    assert (data.images.shape, data.images.dtype) == ((30, 3, 7, 7), torch.uint8)
    assert (data.domain_names, data.classes) == (list(DOMAINS), list(CLASSES))
    assert sorted(data.names) == sorted(grays)
    for name, image, label, domain in zip(data.names, data.images, data.labels.tolist(), data.domains.tolist(), strict=True):
        assert (image == grays[name]).all()
        assert name.split("/")[:2] == [data.domain_names[domain], data.classes[label]]
    assert calls == [(done, 30) for done in range(1, 31)]
    assert not data.skipped


def test_pictures_are_stretched_to_squares(tmp_path: Path) -> None:
    wide = np.repeat(np.uint8([0, 255, 0]), 8)[None, :, None].repeat(8, 0).repeat(3, 2)
    (tmp_path / "art" / "cat").mkdir(parents=True)
    Image.fromarray(wide).save(tmp_path / "art" / "cat" / "wide.png")
    stretched = load_domains(tmp_path, size=8).images.float()
    assert stretched[..., 0].max() < 20
    assert stretched[..., 4].min() > 235


def test_damaged_picture_is_skipped_without_changing_splits(folder: Path) -> None:
    sound = load_domains(folder, size=4)
    hurt = sorted(named(sound, "train"))[3]
    (folder / hurt).write_bytes((folder / hurt).read_bytes()[:50])
    (folder / "art" / "cat" / "notes.txt").write_text("not a picture")
    data = load_domains(folder, size=4)
    assert [name for name, _ in data.skipped] == [hurt]
    assert data.skipped[0][1].startswith(f"{folder / hurt} is cut short or damaged")
    assert named(data, "train") == named(sound, "train") - {hurt}
    assert named(data, "val") == named(sound, "val")
    for name, image in zip(data.names, data.images, strict=True):
        assert torch.equal(image, sound.images[sound.names.index(name)])


@pytest.mark.parametrize(("each", "share", "val"), [(5, 0.1, 1), (15, 0.1, 2), (1, 0.5, 0), (2, 0.9, 1), (4, 0.0, 0)])
def test_a_share_of_each_class_and_domain(tmp_path: Path, each: int, share: float, val: int) -> None:
    fill(tmp_path, each)
    data = load_domains(tmp_path, size=2, split=share)
    for domain in DOMAINS:
        counts = {split: Counter(data.labels[data.select(domain, split)].tolist()) for split in ("train", "val", "test")}
        assert all(counts["val"][label] == val and counts["train"][label] == each - val for label in range(3))
        assert torch.equal(data.select(domain, "test"), data.select(domain))
        both = torch.cat([data.select(domain, "train"), data.select(domain, "val")])
        assert torch.equal(both.sort().values, data.select(domain))


def test_a_split_is_the_same_for_every_copy(folder: Path, tmp_path: Path) -> None:
    # stored names of one split, which must not depend on versions, operating systems or the order of files
    data = load_domains(folder, size=2, split=0.2, seed=3)
    assert sorted(map(key, named(data, "val"))) == VAL_OF_SEED_3
    names = [p.relative_to(folder) for p in folder.rglob("*.png")]
    random.Random(0).shuffle(names)
    for name in names:  # in another order and format
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.open(folder / name).save((tmp_path / "copy" / name).with_suffix(".webp"))
    copy = load_domains(tmp_path / "copy", size=2, split=0.2, seed=3)
    assert sorted(map(key, named(copy, "val"))) == VAL_OF_SEED_3
    assert named(load_domains(folder, size=2, split=0.2, seed=4), "val") != named(data, "val")


def test_lists_of_names_ignore_extensions(folder: Path) -> None:
    lists = {"train": ["art/cat/000.jpg", "photo/owl/004.JPEG"], "val": ["art/cat/001.webp"]}
    data = load_domains(folder, size=2, split=lists)
    assert named(data, "train") == {"art/cat/000.png", "photo/owl/004.png"}
    assert named(data, "val") == {"art/cat/001.png"}
    assert len(data.select(split="test")) == 30
    assert named(load_domains(folder, size=2, split={**lists, "test": ["art/owl/002.png"]}), "test") == {"art/owl/002.png"}


def test_bad_splits(folder: Path) -> None:
    for split, sentence in (
        ({"train": ["art/cat/999.jpg", "art/cat/000.jpg"]}, "list 'train' do not exist: art/cat/999.jpg"),
        ({"train": ["art/cat/000.jpg"], "val": ["art/cat/000.png"]}, "train and val share 1 name, art/cat/000"),
        ({"training": ["art/cat/000.jpg"]}, "'training' is not one of 'train', 'val', 'test'"),
        (1.0, "split .* 1.0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            load_domains(folder, split=split)


def test_lists_beside_domains_override_a_share_but_not_names(folder: Path) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    for domain in DOMAINS:
        mine = [f"{name} 0\n" for name in names if name.startswith(domain)]
        (folder / f"{domain}_test.txt").write_text("".join(mine[::5]))
        (folder / f"{domain}_train.txt").write_text("".join(name for name in mine if name not in mine[::5]))
    (folder / names[5]).unlink()
    data = load_domains(folder, size=2)
    assert named(data, "test") == set(names[::5]) - {names[5]}
    assert [name for name, _ in data.skipped] == [names[5]]
    assert data.official_test == list(DOMAINS)
    assert load_domains(folder, size=2, split={"train": [names[0]]}).official_test == []


def test_names_that_match_two_files(folder: Path) -> None:
    Image.new("RGB", (1, 1)).save(folder / "art/cat/000.bmp")
    assert len(load_domains(folder, size=2)) == 31
    with pytest.raises(PictureError, match=r"several files match art/cat/000\.jpg"):
        load_domains(folder, split={"train": ["art/cat/000.jpg"]})


def test_select_by_domain_and_split(folder: Path) -> None:
    data = load_domains(folder, size=2)
    assert data.select().tolist() == list(range(30))
    assert data.select("photo").tolist() == list(range(15, 30))
    assert data.select(["photo", "art"]).tolist() == [*range(15, 30), *range(15)]
    assert data.select([]).tolist() == []
    assert torch.equal(data.select(["photo"], "val"), data.splits["photo"]["val"])
    with pytest.raises(ValueError, match=r"'sketch'.* 'art', 'photo'"):
        data.select("sketch")
    with pytest.raises(ValueError, match=r"'dev'.* 'train', 'val', 'test'"):
        data.select(split="dev")


def test_some_domains_are_read_with_the_splits_of_all(folder: Path) -> None:
    (folder / "art" / "cat" / "000.png").write_bytes(b"not read")
    data, every = load_domains(folder, size=2, seed=3, domains=["photo"]), load_domains(folder, size=2, seed=3)
    assert (data.domain_names, data.classes, len(data), data.skipped) == (["photo"], list(CLASSES), 15, [])
    assert named(data, "val") == {name for name in named(every, "val") if name.startswith("photo/")}
    with pytest.raises(ValueError, match=r"'sketch'.* 'art', 'photo'"):
        load_domains(folder, domains=["sketch"])


def test_subset(folder: Path) -> None:
    data = load_domains(folder, size=2)
    chosen = torch.tensor([29, 3, 4, 0, 17])
    part = data.subset(chosen)
    assert part.names == [data.names[i] for i in chosen]
    for field in ("images", "labels", "domains"):
        assert torch.equal(getattr(part, field), getattr(data, field)[chosen])
    for split, domain in product(("train", "val", "test"), DOMAINS):
        assert named(part, split) == named(data, split) & set(part.names)
        at = part.select(domain, split).tolist()
        assert at == sorted(at)
        assert all(part.names[i].startswith(domain) for i in at)
    assert part.classes == data.classes
    assert len(part.subset(torch.tensor([], dtype=torch.int64))) == 0
    with pytest.raises(ValueError, match="unique"):
        data.subset(torch.tensor([1, 1]))


def test_counts_and_repr(folder: Path) -> None:
    shutil.rmtree(folder / "photo" / "owl")
    data = load_domains(folder, size=2)
    assert data.counts() == {"art": {"cat": 5, "dog": 5, "owl": 5}, "photo": {"cat": 5, "dog": 5, "owl": 0}}
    splits = {"art": {"train": 12, "val": 3, "test": 15}, "photo": {"train": 8, "val": 2, "test": 10}}
    assert data.counts("split") == splits
    assert repr(data) == "DomainSet(25 pictures of 2 px, 3 classes, domains: art, photo)"
    with pytest.raises(ValueError, match="'domain'"):
        data.counts("domain")


def test_tensors_are_moved_together_and_inconsistent_ones_refused(folder: Path) -> None:
    data = load_domains(folder, size=2)
    moved = data.to("meta")
    tensors = [moved.images, moved.labels, moved.domains, *(t for parts in moved.splits.values() for t in parts.values())]
    assert all(tensor.device.type == "meta" for tensor in tensors)
    wrong = {"images": data.images[0], "labels": data.labels[1:], "domains": data.domains.int(), "splits": {}}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=name):
            replace(data, **{name: value})


def test_a_set_larger_than_memory_is_refused_before_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda device: 30 * 3 * 8 * 8)
    assert len(load_domains(folder, size=8)) == 30
    with pytest.raises(SettingError, match="30 pictures of 9 x 9 pixels need"):
        load_domains(folder, size=9, progress=lambda at: pytest.fail("read a picture"))


def test_zips_and_folders_are_the_same_set(folder: Path, tmp_path: Path) -> None:
    one = load_domains(folder, size=4)
    whole = zip_folder(folder, tmp_path / "whole.zip", under="Set_2016/")
    per_domain = [zip_folder(folder / domain, tmp_path / f"{domain}.zip", under=f"{domain}/") for domain in DOMAINS[::-1]]
    bare = tmp_path / "bare"
    bare.mkdir()
    classes_first = [zip_folder(folder / domain, bare / f"{domain}.zip") for domain in DOMAINS]
    (bare / "README.md").write_text("text does not count")
    for source in (whole, per_domain, classes_first, bare):
        other = load_domains(source, size=4)
        assert other.names == one.names
        assert torch.equal(other.images, one.images)
        assert named(other, "val") == named(one, "val")
    (bare / "sketch.tar").touch()  # possibly another domain
    with pytest.raises(PictureError, match="holds no pictures; pass its zips themselves"):
        load_domains(bare, size=4)
