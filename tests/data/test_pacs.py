import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from trees import zip_folder

from efdm.data import PictureError, pacs
from efdm.data.layouts import key
from efdm.data.pacs import CLASSES, CROSSVAL, PICTURES, load_pacs, read_lists

# PACS reduced to about 1/90 of its pictures; its tables replace the real tables.
SMALL = {
    "art_painting": (4, 3, 3, 2, 2, 3, 5),
    "cartoon": (4, 5, 4, 2, 3, 3, 4),
    "photo": (9, 2, 2, 2, 2, 3, 5),
    "sketch": (8, 8, 8, 6, 8, 2, 2),
}
SMALL_CROSSVAL = {"art_painting": 2, "cartoon": 3, "photo": 3, "sketch": 4}
TOTAL = 114
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def names_of(domain: str) -> list[str]:
    counts = zip(CLASSES, SMALL[domain], strict=True)
    return [f"{domain}/{label}/pic_{n:04d}" for label, count in counts for n in range(count)]


def write_lists(folder: Path) -> None:
    """Write lists for the reduced set, with about a tenth of the pictures for validation."""
    folder.mkdir()
    for domain, count in SMALL_CROSSVAL.items():
        names = names_of(domain)
        val = names[5::7][:count]
        for word, part in {"train": [name for name in names if name not in val], "crossval": val, "test": names}.items():
            text = "".join(f"{name}.jpg {CLASSES.index(name.split('/')[1]) + 1}\n" for name in part)
            (folder / f"{domain}_{word}_kfold.txt").write_text(text)


@pytest.fixture
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacs, "PICTURES", SMALL)
    monkeypatch.setattr(pacs, "CROSSVAL", SMALL_CROSSVAL)


@pytest.fixture
def copy(tmp_path: Path, small_tables: None) -> Path:
    """Make folders of pictures of one black pixel, and lists."""
    for name in (name for domain in SMALL for name in names_of(domain)):
        (tmp_path / "pacs" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (1, 1)).save(tmp_path / "pacs" / f"{name}.bmp")
    write_lists(tmp_path / "pacs" / "splits")
    return tmp_path / "pacs"


def test_a_complete_copy_with_its_lists(copy: Path) -> None:
    data = load_pacs(copy, size=1)
    assert data.classes == list(CLASSES)
    assert data.domain_names == list(SMALL)
    assert data.skipped == []
    for domain, counts in SMALL.items():
        val = SMALL_CROSSVAL[domain]
        assert data.counts("split")[domain] == {"train": sum(counts) - val, "val": val, "test": sum(counts)}
        assert tuple(data.counts()[domain].values()) == counts
    lists = read_lists(copy / "splits")
    for split, names in lists.items():
        assert {key(data.names[i]) for i in data.select(split=split).tolist()} == {key(name) for name in names}


def test_own_split_needs_no_lists(copy: Path, tmp_path: Path) -> None:
    lists = shutil.move(copy / "splits", tmp_path / "below" / "deep" / "lists")
    with pytest.raises(ValueError, match="split='mine'"):
        load_pacs(copy, split="mine")  # type: ignore[arg-type]
    with pytest.raises(PictureError, match=r"photo_train_kfold.txt .* split='own'"):
        load_pacs(copy, size=1)
    own = load_pacs(copy, split="own", size=1)
    for domain, counts in SMALL.items():
        assert own.counts("split")[domain]["val"] == sum(max(1, int(count * 0.1 + 0.5)) for count in counts)
    folder = tmp_path / "zips"
    folder.mkdir()
    (folder / "another.zip").touch()
    zips = [zip_folder(copy / domain, folder / f"pacs-{domain}.zip", f"{domain}/") for domain in SMALL]
    for source in (zips, folder):
        elsewhere = load_pacs(source, lists=lists, size=1)
        assert elsewhere.names == own.names
        assert not torch.equal(elsewhere.select(split="val"), own.select(split="val"))


def test_missing_pictures_are_counted_and_listed(copy: Path) -> None:
    gone = {f"photo/dog/pic_{n:04d}.bmp" for n in (0, 1, 2, 3, 7)}
    for name in gone:
        (copy / name).unlink()
    with pytest.raises(PictureError, match="photo/dog has 4 pictures, expected 9"):
        load_pacs(copy)
    data = load_pacs(copy, copy="partial", size=1)
    assert len(data) == TOTAL - 5
    assert {key(name) for name, _ in data.skipped} == {key(name) for name in gone}
    assert data.counts("split")["photo"]["test"] == 20
    for domain in ("art_painting", "cartoon"):
        shutil.rmtree(copy / domain)
    for split in ("official", "own"):
        with pytest.raises(PictureError, match="not the complete PACS: art_painting is missing, cartoon is missing, photo"):
            load_pacs(copy, split=split)


def test_unknown_pictures_are_named(copy: Path) -> None:
    (copy / "sketch/person/pic_0001.bmp").rename(copy / "sketch/person/new.bmp")
    with pytest.raises(PictureError, match=r"sketch/person has 1 picture, expected 2, sketch/person/new.bmp is not part"):
        load_pacs(copy)
    data = load_pacs(copy, copy="partial", size=1)
    assert "sketch/person/new.bmp" not in data.names
    assert len(data.skipped) == 2


def test_one_domain_keeps_the_numbers_of_classes(copy: Path, tmp_path: Path) -> None:
    horses = zip_folder(copy / "photo/horse", tmp_path / "horses.zip", "photo/horse/")
    data = load_pacs(horses, split="own", copy="partial", size=1)
    assert data.domain_names == ["photo"]
    assert set(data.labels.tolist()) == {CLASSES.index("horse")}


def test_other_pictures_are_refused(copy: Path, tmp_path: Path) -> None:
    other = zip_folder(copy / "photo", tmp_path / "other.zip", "Clipart/")
    for options in ({"lists": copy / "splits"}, {"split": "own"}, {"split": "own", "copy": "partial"}):
        with pytest.raises(PictureError, match=r"no pictures of PACS, whose domains are art_painting.*found Clipart"):
            load_pacs(other, **options)
    for picture in list(copy.rglob("*.bmp")):
        picture.rename(picture.with_name(f"x{picture.name}"))
    with pytest.raises(PictureError, match="names of the files differ, choose split='own'"):
        load_pacs(copy, copy="partial")


def test_damaged_and_double_pictures_are_named(copy: Path) -> None:
    bad = "cartoon/guitar/pic_0001.bmp"
    (copy / bad).write_bytes((copy / bad).read_bytes()[:20])
    with pytest.raises(PictureError, match=f"1 picture of PACS cannot be read: {copy / bad} is cut short or damaged"):
        load_pacs(copy, size=1)
    data = load_pacs(copy, copy="partial", size=1)
    assert [name for name, _ in data.skipped] == [bad]
    (copy / bad).with_suffix(".png").touch()
    with pytest.raises(PictureError, match="cartoon/guitar has 3 pictures, expected 2"):
        load_pacs(copy)
    with pytest.raises(PictureError, match="several files match cartoon/guitar/pic_0001"):
        load_pacs(copy, copy="partial")


def test_wrong_lists_are_reported(tmp_path: Path, small_tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lists(tmp_path / "lists")
    path = tmp_path / "lists" / "photo_train_kfold.txt"
    first, *rest = path.read_text().splitlines()
    for wrong, sentence in (
        ([first, *rest[:-1]], "lists of photo .* disagree about 1 picture, photo/person/pic_0004"),
        ([first.replace("photo", "cartoon"), *rest], "has 'cartoon/dog"),
        (["index of pictures", first, *rest], "has 'index of'"),
        ([first.replace("0000", "9999"), *rest], "disagree about 2 pictures, photo/dog/pic_0000, photo/dog/pic_9999"),
    ):
        path.write_text("\n".join(wrong))
        with pytest.raises(PictureError, match=sentence):
            read_lists(tmp_path / "lists")
    path.write_text("\n".join([first, *rest]))
    plain = read_lists(tmp_path / "lists")
    for path in (tmp_path / "lists").iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert read_lists(tmp_path / "lists") == plain
    with monkeypatch.context() as patch:
        patch.setitem(SMALL_CROSSVAL, "photo", 4)
        with pytest.raises(PictureError, match=r"photo .*expected 4 pictures in crossval and 25 in test, got 3 and 25"):
            read_lists(tmp_path / "lists")
    (tmp_path / "lists" / "sketch_crossval_kfold.txt").unlink()
    with pytest.raises(PictureError, match=r"sketch_crossval_kfold\.txt does not exist"):
        read_lists(tmp_path / "lists")


def test_tables_are_those_of_the_published_lists() -> None:
    assert [sum(counts) for counts in PICTURES.values()] == [2048, 2344, 1670, 3929]
    assert sum(CROSSVAL.values()) == 1014
    if not (SHARED / "pacs-splits").is_dir():
        pytest.skip("needs the PACS data")
    lists = read_lists(SHARED / "pacs-splits")
    assert {split: len(names) for split, names in lists.items()} == {"train": 8977, "val": 1014, "test": 9991}
    for domain, counts in PICTURES.items():
        for label, count in zip(CLASSES, counts, strict=True):
            assert sum(name.startswith(f"{domain}/{label}/") for name in lists["test"]) == count
