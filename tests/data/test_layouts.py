import shutil
from pathlib import Path

import pytest
from trees import touch, zip_folder

from efdm.data import PictureError
from efdm.data.layouts import LAYOUT, assign, by_lists, find_items, key

PLAIN = [f"{domain}/{label}/{n}.jpg" for domain in ("art", "photo") for label in ("cat", "dog") for n in range(10)]


def parts(root: Path, split: float = 0.2) -> dict[str, set[str]]:
    return {item.name: set(item.splits) for item in assign(find_items(root)[0], split)}


KNOWN = {  # the layouts of the published archives
    "office_home": ("OfficeHomeDataset_10072016/Real World/Alarm_Clock/00001.jpg", "Real World", "Alarm_Clock"),
    "domain_net": ("clipart/aircraft_carrier/clipart_001_000001.jpg", "clipart", "aircraft_carrier"),
    "domain_net_class_train": ("domain_net/clipart/train/clipart_313_000001.jpg", "clipart", "train"),
    "office_31": ("amazon/images/back_pack/frame_0001.jpg", "amazon", "back_pack"),
    "vlcs_domainbed": ("VLCS/Caltech101/bird/0001.jpg", "Caltech101", "bird"),
    "vlcs_full": ("VLCS/CALTECH/full/0/imgs_0.jpg", "CALTECH", "0"),
    "pacs": ("PACS/kfold/photo/dog/056_0001.jpg", "photo", "dog"),
    "visda": ("train/aeroplane/src_1.png", "train", "aeroplane"),
}


@pytest.mark.parametrize(("name", "domain", "label"), KNOWN.values(), ids=KNOWN)
def test_known_layouts(tmp_path: Path, name: str, domain: str, label: str) -> None:
    (item,), _ = find_items(touch(tmp_path, [name]))
    assert (item.domain, item.label) == (domain, label)


def test_folders_for_splits_are_used(tmp_path: Path) -> None:
    words = {"train": "train", "crossval": "val", "test": "test"}
    names = [f"SUN/{word}/{label}/{word}{n}.jpg" for word in words for label in "01" for n in range(5)]
    copies = ["/".join(["SUN/full", *name.split("/")[2:]]) for name in names]
    found = parts(touch(tmp_path, names + copies))
    assert found == {name: {words[name.split("/")[1]]} for name in names}


def test_validation_is_a_share_of_train_if_it_has_no_folder(tmp_path: Path) -> None:
    names = [f"SUN/{part}/{label}/{n}.jpg" for part in ("train", "test") for label in "01" for n in range(5)]
    found = parts(touch(tmp_path, names))
    assert all(found[name] == {"test"} for name in names if "/test/" in name)
    of_train = [found[name] for name in names if "/train/" in name]
    assert of_train.count({"val"}) == 2
    assert of_train.count({"train"}) == 8


def test_whole_beside_test_is_one_copy(tmp_path: Path) -> None:
    names = [f"SUN/{part}/0/{n}.jpg" for part in ("full", "test") for n in range(5)]
    found = parts(touch(tmp_path, names))
    assert set(found) == {name for name in names if "/full/" in name}
    assert all("test" in part for part in found.values())


def test_stray_pictures_are_skipped(tmp_path: Path) -> None:
    items, outside = find_items(touch(tmp_path, [*PLAIN, "overview.png", "docs/figures/teaser/all.png"]))
    assert {item.name for item in items} == set(PLAIN)
    assert [name for name, _ in outside] == ["docs/figures/teaser/all.png", "overview.png"]
    assert "overview.png is outside" in outside[1][1]
    with pytest.raises(PictureError, match="40 pictures found twice"):
        find_items([tmp_path, tmp_path])
    with pytest.raises(PictureError, match="no source"):
        find_items([])


WRONG = {
    "flat": ["a.jpg", "b.jpg"],
    "classes_only": ["cat/a.jpg", "dog/b.jpg"],
    "split_outside_domain": [f"{part}/{name}" for part in ("train", "test") for name in PLAIN],
    "deeper_classes": [f"{name[:-4]}/x.jpg" for name in PLAIN] + PLAIN,
    "only_test": ["VLCS/SUN/test/0/a.jpg"],
    "split_beside_classes": [*PLAIN, "art/train/cat/10.jpg"],
    "no_common_class": ["art/cat/a.jpg", "photo/dog/b.jpg"],
}


@pytest.mark.parametrize("names", WRONG.values(), ids=WRONG)
def test_other_layouts_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(PictureError) as caught:
        find_items(touch(tmp_path, names))
    assert LAYOUT in str(caught.value)


def test_a_file_that_is_no_zip_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "PACS.tar.gz"
    archive.touch()
    with pytest.raises(PictureError, match=r"PACS\.tar\.gz is neither a folder nor a zip; unpack it"):
        find_items(archive)


def lists(root: Path) -> Path:
    """Write lists like those of DomainNet, with the last three of ten pictures for the test."""
    touch(root, PLAIN)
    for domain in ("art", "photo"):
        mine = [name for name in PLAIN if name.startswith(domain)]
        for part, numbers in (("train", range(7)), ("test", range(7, 10))):
            lines = [f"{n} {int('dog' in n)}" for n in mine if int(Path(n).stem) in numbers]
            (root / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def by_listed(root: Path) -> tuple[dict[str, set[str]], list[tuple[str, str]]]:
    items, skipped = by_lists(find_items(root)[0])
    return {item.name: set(item.splits) for item in assign(items, 0.2)}, skipped


def test_lists_beside_domains_are_used(tmp_path: Path) -> None:
    found, skipped = by_listed(lists(tmp_path))
    assert skipped == []
    assert {name for name, part in found.items() if part == {"test"}} == {n for n in PLAIN if n[-5] in "789"}
    assert set(found) == set(PLAIN)
    assert all(len(part) == 1 for part in found.values())
    assert sum(part == {"val"} for part in found.values()) == 4  # a fifth of seven pictures in each class and domain
    assert by_listed(tmp_path)[0] == found


def test_lists_in_or_beside_zips(tmp_path: Path) -> None:
    root = lists(tmp_path / "set")
    expected = by_listed(root)
    for under in ("", "DomainNet/"):
        assert by_listed(zip_folder(root, tmp_path / "whole.zip", under)) == expected
    for domain in ("art", "photo"):
        zip_folder(root / domain, root / f"{domain}.zip", f"{domain}/")
        shutil.rmtree(root / domain)
    assert by_listed(root) == expected


def test_differences_between_lists_and_folders_are_reported(tmp_path: Path) -> None:
    root = lists(tmp_path)
    (root / "art/cat/8.jpg").unlink()
    touch(root, ["photo/dog/extra.jpg"])
    with (root / "art_train.txt").open("a") as file:
        file.write("art/bird/0.jpg 2\n")  # a missing class folder is not reported
    found, skipped = by_listed(root)
    assert set(found) == set(PLAIN) - {"art/cat/8.jpg"}
    assert [reason for _, reason in skipped] == [
        "art/cat/8.jpg is in art_test.txt but does not exist",
        "photo/dog/extra.jpg is not in any list",
    ]


def test_lists_that_cannot_be_used(tmp_path: Path) -> None:
    for file, text, sentence in (
        ("art_test", "art/cat/0.jpg 0\n", "both lists of art contain art/cat/0.jpg"),
        ("art_test", "photo/cat/0.jpg 0\n", r"art_test.txt has 'photo/cat/0.jpg'; .*'art/class/name.jpg 0'"),
        ("photo_test", "\0\0", "photo_test.txt has ''; expected lines like"),
        ("photo_test", "photo/cat/99.jpg 0\n", r"none of the pictures in .*photo_test.txt exists"),
    ):
        (lists(tmp_path) / f"{file}.txt").write_text(text)
        with pytest.raises(PictureError, match=sentence):
            by_listed(tmp_path)
    lists(tmp_path)
    (tmp_path / "photo_test.txt").unlink()
    with pytest.raises(PictureError, match=r"has art_train.txt, but no photo_test.txt"):
        by_listed(tmp_path)


def test_hidden_folders_are_ignored(tmp_path: Path) -> None:
    root = touch(tmp_path / "set", [*PLAIN, "__MACOSX/art/cat/._0.jpg", ".cache/x.jpg", "art/__MACOSX/.DS_Store"])
    assert {item.name for item in find_items(root)[0]} == set(PLAIN)


def test_keys_ignore_extensions_and_unicode_forms() -> None:
    assert key("art/cafe\u0301/a.b.jpg") == key("art\\caf\u00e9\\a.b.webp") == "art/caf\u00e9/a.b"
    assert key("art/cat/a-1.png") != key("art/cat/a-10.png")
